"""The second act: an engine loses its disk and every run comes back; then Kafka is off, and the
history of one run is read from S3 alone.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

from dalsegno.ops.embedded.s3 import EmbeddedS3
from examples.risk_control.faults import Fault
from examples.risk_control.processes import Fleet

ARCHIVE_INTERVAL_MS: Final = 1_000
_LOOK_S: Final = 0.2
_LIMIT_S: Final = 60.0


def settings(s3: EmbeddedS3) -> dict[str, str]:
    """The bucket, for engines and commands."""
    return {
        **s3.environment(),
        "DALSEGNO_ARCHIVE_INTERVAL_MS": str(ARCHIVE_INTERVAL_MS),
    }


class Disk:
    """The local databases of one engine, which can be lost with it."""

    def __init__(self, folder: Path, engine: str) -> None:
        self._folder = folder / f"disk-of-{engine}"
        self._engine = engine
        self.files_lost = 0

    @property
    def environment(self) -> dict[str, str]:
        """For its engine."""
        return {"DALSEGNO_DATA_DIR": str(self._folder)}

    def fault(self, at: float, fleet: Fleet) -> Fault:
        """kill -9, and its disk is deleted; then it starts on an empty one."""

        def lose() -> None:
            fleet.kill(self._engine)
            self.files_lost = sum(each.is_file() for each in self._folder.rglob("*"))
            shutil.rmtree(self._folder)

        name = f"kill -9 {self._engine}, and its disk is deleted"
        return Fault(at, name, lose, 1.0, lambda: fleet.restart(self._engine))


class History(NamedTuple):
    """A run as the bucket tells it."""

    text: str
    whole: bool


def history(env: dict[str, str], run_id: str) -> History:
    """`dalsegno audit RUN --archive-only`, once the run's end is in the bucket."""
    limit = time.monotonic() + _LIMIT_S
    whole = False
    while not whole and time.monotonic() < limit:
        time.sleep(_LOOK_S)
        done = _audit(env, run_id, "--json")
        if done.returncode == 0:
            document = json.loads(done.stdout)
            ended = document["transitions"][-1]["run_state_after"] == "succeeded"
            whole = ended and not document["differences"]
    return History(_audit(env, run_id).stdout, whole)


def _audit(env: dict[str, str], run_id: str, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dalsegno.ops.cli", "audit", run_id, "--archive-only", *more],
        env=env,
        check=False,
        capture_output=True,
        text=True,
    )
