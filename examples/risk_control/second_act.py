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
from typing import Final

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

    @property
    def environment(self) -> dict[str, str]:
        """For its engine."""
        return {"DALSEGNO_DATA_DIR": str(self._folder)}

    def fault(self, at: float, fleet: Fleet) -> Fault:
        """kill -9, and its disk is deleted; then it starts on an empty one."""

        def lose() -> None:
            fleet.kill(self._engine)
            shutil.rmtree(self._folder)

        name = f"kill -9 {self._engine}, and its disk is deleted"
        return Fault(at, name, lose, 1.0, lambda: fleet.restart(self._engine))


def wait_archived(env: dict[str, str], run_id: str) -> bool:
    """Until the run's end is in the bucket, and all of it folds as it was archived."""
    limit = time.monotonic() + _LIMIT_S
    while time.monotonic() < limit:
        done = _audit(env, run_id, "--json")
        if done.returncode == 0:
            document = json.loads(done.stdout)
            if document["transitions"][-1]["run_state_after"] == "succeeded":
                return not document["differences"]
        time.sleep(_LOOK_S)
    return False


def history(env: dict[str, str], run_id: str) -> str:
    """What `dalsegno audit RUN --archive-only` prints."""
    return _audit(env, run_id).stdout


def _audit(env: dict[str, str], run_id: str, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dalsegno.ops.cli", "audit", run_id, "--archive-only", *more],
        env=env,
        check=False,
        capture_output=True,
        text=True,
    )
