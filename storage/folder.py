"""Where an engine keeps its databases: a folder of its own, held by a lock of the kernel.

A lock file that stays behind locks nothing: the kernel's lock goes with the process. Engines that
share a data folder take `engine-0`, `engine-1` and so on, whichever is free.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Set
from pathlib import Path
from typing import Final
from uuid import uuid4

from dalsegno.storage.errors import StoreFullError

ENGINES_MAX: Final = 64
_LOCK: Final = "lock"
_ASIDE: Final = "aside-"


class EngineFolder:
    """One locked folder. Held until `release`, or the end of the process."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self._handle = handle

    @classmethod
    def take(cls, data: Path) -> EngineFolder:
        """The first free folder under `data`. Raises `StoreFullError` if there is none, or none
        can be made.
        """
        for number in range(ENGINES_MAX):
            path = data / f"engine-{number}"
            try:
                path.mkdir(parents=True, exist_ok=True)
                handle = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise StoreFullError(f"{path}: {error}") from error
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
                continue
            return cls(path, handle)
        raise StoreFullError(f"{data} has {ENGINES_MAX} engine folders, all in use")

    def partition(self, number: int) -> Path:
        """The newest folder of a partition's database."""
        return self._made(number, max(self._numbers(number), default=0))

    def another(self, number: int) -> Path:
        """A new folder, for a partition whose database cannot be had or used. Removes the old
        ones; files that are still open go when they are closed.
        """
        numbers = self._numbers(number)
        for old in numbers:
            shutil.rmtree(self._path(number, old), ignore_errors=True)
        return self._made(number, max(numbers, default=0) + 1)

    def set_aside(self, in_use: Set[int], before_s: float) -> list[int]:
        """Takes the databases of partitions that are not in use and in which nothing was written
        since `before_s` (Unix seconds) out of the way: their partitions begin anew, whatever
        becomes of them. Moves names alone, so it is quick. Which partitions they were of.
        """
        moved: list[int] = []
        for path in sorted(self.path.glob("partition-*.*")):
            number = path.stem.removeprefix("partition-")
            if number.isdigit() and int(number) not in in_use and _newest_s(path) < before_s:
                path.rename(self.path / f"{_ASIDE}{uuid4().hex}")
                moved.append(int(number))
        return moved

    def remove_aside(self) -> list[Path]:
        """Removes what was set aside, also before a crash. What cannot be removed."""
        found = list(self.path.glob(f"{_ASIDE}*"))
        for path in found:
            # One that cannot be removed keeps no other: it is told, and tried again.
            shutil.rmtree(path, ignore_errors=True)
        return [path for path in found if path.exists()]

    def _made(self, number: int, generation: int) -> Path:
        path = self._path(number, generation)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreFullError(f"{path}: {error}") from error
        return path

    def _path(self, number: int, generation: int) -> Path:
        return self.path / f"partition-{number}.{generation}"

    def _numbers(self, number: int) -> list[int]:
        found = self.path.glob(f"partition-{number}.*")
        return [int(path.suffix[1:]) for path in found if path.suffix[1:].isdigit()]

    def release(self) -> None:
        """Let another engine have it."""
        os.close(self._handle)


def _newest_s(folder: Path) -> float:
    times = [folder.stat().st_mtime, *(each.stat().st_mtime for each in folder.iterdir())]
    return max(times)
