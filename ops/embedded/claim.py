"""One owner per data folder, also across the moment in which a killed owner's broker ends."""

import fcntl
import os
from pathlib import Path

from dalsegno.ops.embedded.errors import DataInUseError
from dalsegno.ops.guard import await_predecessor, pid_in


def claim(data: Path, pid_file: str) -> int:
    """Lock the folder for this process; returns the lock's file descriptor.

    Waits for the child of an owner that was just killed; raises DataInUseError for a live owner.
    The kernel drops the lock when the process ends, however it ends.
    """
    lock = os.open(data / "owner.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise DataInUseError(data, pid_in(data / pid_file)) from None
    alive = await_predecessor(data / pid_file, str(data))
    if alive is not None:
        os.close(lock)
        raise DataInUseError(data, alive)
    return lock
