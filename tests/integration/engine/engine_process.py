"""`python -m tests.integration.engine.engine_process [tiny | broken:NAME]`: an engine as a process.

`broken:NAME` is one of the oracle's deliberate breaks.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from dalsegno.streams.agents.events import register
from dalsegno.streams.engine import opening
from dalsegno.streams.engine.app import run_engine
from dalsegno.streams.engine.checkpoint import Checkpointer
from dalsegno.streams.engine.restore import Restored, RestoreJob, RestoreProgress
from dalsegno.streams.engine.settings import EngineSettings
from dalsegno.streams.engine.sinks import Sink


def hold_restore(gate: Path) -> None:
    """The restore of partition 0 takes until this file is there, as one of many records would."""
    read = opening.restore

    def held(
        settings: EngineSettings, job: RestoreJob, progress: RestoreProgress, sink: Sink
    ) -> Restored:
        while job.partition == 0 and not gate.exists():
            time.sleep(0.05)
        return read(settings, job, progress, sink)

    opening.restore = held  # type: ignore[attr-defined]


def fail_a_close() -> None:
    """The first checkpointer that is closed raises what nobody expects."""
    close, failed = Checkpointer.close, iter([True])

    async def failing(self: Checkpointer) -> None:
        await close(self)
        if next(failed, False):
            raise RuntimeError("a fault of ours")

    Checkpointer.close = failing  # type: ignore[method-assign]


def main() -> int:
    if "tiny" not in sys.argv:
        from dalsegno.streams.agents.serve import serve

        for name in (each for each in sys.argv if each.startswith("broken:")):
            from tests.integration.oracle.breaks import BREAKS

            BREAKS[name.removeprefix("broken:")]()
        if point := os.environ.get("DIE_AT"):
            from tests.integration.engine.archive_deaths import install

            install(point, Path(os.environ["DIE_ONCE"]))
        return serve(EngineSettings())
    from tests.integration.engine.tiny_fold import TinyFold

    hold = os.environ.get("HOLD_RESTORE")
    if hold:
        hold_restore(Path(hold))
    if "FAIL_CLOSE" in os.environ:
        fail_a_close()
    if point := os.environ.get("FREEZE_AT"):
        from tests.integration.engine.freezing import install as install_freeze

        number, pid = int(os.environ["FREEZE_BY"]), int(os.environ["FREEZE_PID"])
        install_freeze(point, number, pid, Path(os.environ["FREEZE_MARK"]))
    return run_engine(EngineSettings(), register, folds=TinyFold)


if __name__ == "__main__":
    sys.exit(main())
