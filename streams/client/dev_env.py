"""What `dalsegno dev` leaves in its folder, so that programs started beside it find its broker."""

from __future__ import annotations

from pathlib import Path
from typing import Final

DATA_FOLDER: Final = ".dalsegno"
ENV_FILE: Final = "env"
_PREFIX: Final = "DALSEGNO_"


def read_env(folder: Path) -> dict[str, str]:
    """The `DALSEGNO_` values of the folder's file; empty if there is none that we may read."""
    try:
        text = (folder / ENV_FILE).read_text(encoding="utf-8")
    except OSError:
        return {}
    pairs = (line.partition("=") for line in text.splitlines())
    return {name: value for name, equals, value in pairs if equals and name.startswith(_PREFIX)}
