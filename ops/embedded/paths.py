"""Where fetched jars and class archives are kept between runs."""

import os
from pathlib import Path


def cache_dir() -> Path:
    """`dalsegno` below the user's XDG cache folder; made if missing."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = Path(base).expanduser() / "dalsegno"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
