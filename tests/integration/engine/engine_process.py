"""`python -m tests.integration.engine.engine_process [tiny | broken:NAME]`: an engine as a process.

`broken:NAME` is one of the oracle's deliberate breaks.
"""

from __future__ import annotations

import sys

from dalsegno.streams.agents.events import register
from dalsegno.streams.engine.app import run_engine
from dalsegno.streams.engine.settings import EngineSettings


def main() -> int:
    if "tiny" not in sys.argv:
        from dalsegno.streams.agents.serve import serve

        for name in (each for each in sys.argv if each.startswith("broken:")):
            from tests.integration.oracle.breaks import BREAKS

            BREAKS[name.removeprefix("broken:")]()
        return serve(EngineSettings())
    from tests.integration.engine.tiny_fold import TinyFold

    return run_engine(EngineSettings(), register, folds=TinyFold)


if __name__ == "__main__":
    sys.exit(main())
