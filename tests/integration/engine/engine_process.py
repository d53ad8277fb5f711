"""`python -m tests.integration.engine.engine_process [tiny]`: an engine as a process of its own."""

from __future__ import annotations

import sys

from dalsegno.streams.agents.events import register
from dalsegno.streams.engine.app import run_engine
from dalsegno.streams.engine.fold import FoldFactory
from dalsegno.streams.engine.settings import EngineSettings


def main() -> int:
    folds: FoldFactory
    if "tiny" in sys.argv:
        from tests.integration.engine.tiny_fold import TinyFold

        folds = TinyFold
    else:
        from dalsegno.streams.core.partition import Partition

        folds = Partition
    return run_engine(EngineSettings(), register, folds=folds)


if __name__ == "__main__":
    sys.exit(main())
