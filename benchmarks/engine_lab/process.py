"""An engine as a process of its own; with DALSEGNO_PROFILE it leaves a profile of its main
thread.
"""

from __future__ import annotations

import cProfile
import os
import sys

from dalsegno.streams.agents.serve import serve
from dalsegno.streams.engine.settings import EngineSettings


def main() -> int:
    """Runs the engine."""
    path = os.environ.get("DALSEGNO_PROFILE")
    if not path:
        return serve(EngineSettings())
    profile = cProfile.Profile()
    profile.enable()
    try:
        return serve(EngineSettings())
    finally:
        profile.disable()
        profile.dump_stats(path)


if __name__ == "__main__":
    sys.exit(main())
