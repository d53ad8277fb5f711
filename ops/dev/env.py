"""The environment that `dalsegno dev` leaves in its folder, so that other terminals find it."""

import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path

DATA_FOLDER = ".dalsegno"
_FILE = "env"
_PREFIX = "DALSEGNO_"


def write_env(folder: Path, values: Mapping[str, str]) -> Path:
    """Write `NAME=value` lines that only this user may read: they hold the MAC key."""
    path = folder / _FILE
    fresh = path.with_suffix(f".{os.getpid()}")
    fresh.touch(mode=0o600)
    fresh.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    fresh.replace(path)
    return path


def read_env(folder: Path) -> dict[str, str]:
    """The `DALSEGNO_` values of the folder's file; empty if there is none."""
    path = folder / _FILE
    if not path.exists():
        return {}
    pairs = (line.partition("=") for line in path.read_text().splitlines())
    return {name: value for name, equals, value in pairs if equals and name.startswith(_PREFIX)}


def adopt_env(environ: MutableMapping[str, str], folder: Path) -> bool:
    """Fill in what `environ` lacks, unless it already names brokers. Whether anything was read."""
    if environ.get("DALSEGNO_BOOTSTRAP_SERVERS"):
        return False
    found = read_env(folder)
    for name, value in found.items():
        environ.setdefault(name, value)
    return bool(found)
