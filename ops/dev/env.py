"""The environment that `dalsegno dev` leaves in its folder, so that other terminals find it."""

import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from dalsegno.streams.client.dev_env import DATA_FOLDER, ENV_FILE, read_env

__all__ = ["DATA_FOLDER", "adopt_env", "read_env", "write_env"]


def write_env(folder: Path, values: Mapping[str, str]) -> Path:
    """Write `NAME=value` lines that only this user may read: they hold the MAC key."""
    path = folder / ENV_FILE
    fresh = path.with_suffix(f".{os.getpid()}")
    fresh.touch(mode=0o600)
    fresh.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    fresh.replace(path)
    return path


def adopt_env(environ: MutableMapping[str, str], folder: Path) -> bool:
    """Fill in what `environ` lacks, unless it already names brokers. Whether anything was read."""
    if environ.get("DALSEGNO_BOOTSTRAP_SERVERS"):
        return False
    found = read_env(folder)
    for name, value in found.items():
        environ.setdefault(name, value)
    return bool(found)
