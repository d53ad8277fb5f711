"""Names of workers: one live process per cluster and name on a host, proved by a kernel lock.

The lock ends with its process however that dies, so a name is free at once after a kill. The lock's
file also remembers the incarnation that last ran here under the name: a hello with an older
incarnation that is not ours came from another host, where no lock proves that its process is gone.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dalsegno.streams.client.errors import NameInUse, SettingsError

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
_CLUSTER: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")
_DIGEST_BYTES: Final = 12
_NUMBERS_MAX: Final = 10_000  # workers of one host


class WorkerName:
    """A claimed name. Holds the lock until `release` or the end of the process."""

    def __init__(self, name: str, path: Path, fd: int) -> None:
        self.name = name
        self.host = socket.gethostname()
        self._path = path
        self._fd = fd

    def last_incarnation(self) -> int | None:
        """Incarnation that ran on this host under this name before us, or None if none is known."""
        try:
            return int(self._path.with_suffix(".incarnation").read_text())
        except (FileNotFoundError, ValueError):
            return None

    def remember(self, incarnation: int) -> None:
        """Keep our incarnation for whoever starts here under this name next."""
        target = self._path.with_suffix(".incarnation")
        draft = self._path.with_suffix(f".{os.getpid()}")
        draft.write_text(str(incarnation))
        draft.replace(target)

    def release(self) -> None:
        """Give the name up. May be repeated."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def check_name(name: str) -> None:
    """Raises `SettingsError` for a name outside `[A-Za-z0-9._-]{1,100}`."""
    if not _NAME.fullmatch(name):
        raise SettingsError(f"worker name {name!r}: 1 to 100 of letters, digits, '.', '_', '-'")


def claim_name(
    prefix: str, name: str | None = None, folder: Path | None = None, *, cluster: str
) -> WorkerName:
    """Claim `name`, or the host's name and the lowest free number, under a prefix of a cluster.

    Raises `NameInUse` if a live process has it, `SettingsError` for one that cannot be a name.
    """
    home = folder or Path(tempfile.gettempdir()) / f"dalsegno-workers-{os.getuid()}"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    within = f"{_in_a_path(cluster)}.{prefix}"
    if name is not None:
        check_name(name)
        path = home / f"{within}.{name}.lock"
        fd = _lock(path)
        if fd is None:
            raise NameInUse(name, str(path))
        return WorkerName(name, path, fd)
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:90] or "host"
    return _first_free(home, within, lambda number: f"{host}-{number}")


def _in_a_path(cluster: str) -> str:
    """An id as Kafka makes them stays as it is; what else there may be, its digest."""
    if _CLUSTER.fullmatch(cluster):
        return cluster
    return hashlib.blake2b(cluster.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def _first_free(home: Path, within: str, name_of: Callable[[int], str]) -> WorkerName:
    for number in range(_NUMBERS_MAX):
        name = name_of(number)
        path = home / f"{within}.{name}.lock"
        fd = _lock(path)
        if fd is not None:
            return WorkerName(name, path, fd)
    raise SettingsError(f"{_NUMBERS_MAX} workers run on this host under {within!r} already")


def _lock(path: Path) -> int | None:
    """The descriptor that holds the lock, or None if another process does. Not inherited by
    children.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd
