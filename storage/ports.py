"""What the warm tier needs of a local store: one ordered table of bytes per partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class TableStat:
    """Bytes on disk; whether writes are held back by it."""

    disk_bytes: int = 0
    stalled: bool = False


class Table(Protocol):
    """Bytes by key, in the order of the keys. One thread writes; any thread may read meanwhile.

    Calls may block on the disk. What has been written can be read at once, and outlives the process
    only once it is flushed: then it is all that was written up to some write, in order.
    """

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of the keys, read together. Raises `StoreLostError`."""

    def scan(self, first: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Entries from `first` on and before `end`, at most `limit`. Raises `StoreLostError`."""

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        """All of the changes (None: delete), or none of them.

        Raises `StoreBusyError`, `StoreFullError`, `StoreLostError`.
        """

    def flush(self) -> None:
        """What was written outlives the process now. Raises as `write`."""

    def compact(self) -> None:
        """What was deleted or replaced is in no file any more. Raises as `write`."""

    def stat(self) -> TableStat:
        """How it is."""

    def close(self) -> None:
        """Flush it, and let go of it either way. Raises `StoreError` if it was not flushed."""
