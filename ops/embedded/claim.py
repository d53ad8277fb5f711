"""One owner per data folder, also across the moment in which a killed owner's broker ends."""

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

from dalsegno.ops.embedded.errors import DataInUseError
from dalsegno.ops.guard import command_of

_PREDECESSOR_S_MAX = 10.0
"""A guard ends Java within 6 s of its owner's death."""


def claim(data: Path) -> int:
    """Lock the folder for this process; returns the lock's file descriptor.

    Waits for the Java of an owner that was just killed; raises DataInUseError for a live owner.
    The kernel drops the lock when the process ends, however it ends.
    """
    lock = os.open(data / "owner.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _await_predecessor(data)
    except BlockingIOError:
        os.close(lock)
        raise DataInUseError(data, broker_pid(data)) from None
    except DataInUseError:
        os.close(lock)
        raise
    return lock


def broker_pid(data: Path) -> int | None:
    """Pid of the Java that last ran on this folder, whether it lives or not."""
    with suppress(OSError, ValueError):
        return int((data / "java.pid").read_text())
    return None


def _await_predecessor(data: Path) -> None:
    pid = broker_pid(data)
    limit = time.monotonic() + _PREDECESSOR_S_MAX
    # Pids are used again: only a process whose command names our folder is a predecessor.
    while pid is not None and str(data) in command_of(pid):
        if time.monotonic() > limit:
            raise DataInUseError(data, pid)
        time.sleep(0.05)
