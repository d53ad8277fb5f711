"""`python -m tests.integration.four_groups.engine_process NAME FOLDER [BREAK]`: an engine."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.integration.four_groups.breaks import BREAKS
from tests.integration.four_groups.interrupting import in_engine

from dalsegno.streams.agents.serve import serve
from dalsegno.streams.engine.settings import EngineSettings

if __name__ == "__main__":
    in_engine(sys.argv[1], Path(sys.argv[2]))
    for each in sys.argv[3:]:
        BREAKS[each]()
    sys.exit(serve(EngineSettings()))
