"""A table in memory: the store's contract without a disk, for tests and the simulation."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence

from dalsegno.storage.errors import StoreLostError
from dalsegno.storage.ports import TableStat


class MemoryTable:
    """See `Table`. `after_crash` loses what was not flushed."""

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []
        self._flushed: dict[bytes, bytes] = {}
        self._closed = False

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of the keys."""
        self._check()
        return [self._values.get(key) for key in keys]

    def scan(self, first: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Entries from `first` on and before `end`, at most `limit`."""
        self._check()
        at = bisect_left(self._keys, first)
        stop = min(bisect_left(self._keys, end), at + limit)
        return [(key, self._values[key]) for key in self._keys[at:stop]]

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        """All of the changes (None: delete)."""
        self._check()
        for key, value in changes.items():
            if value is not None:
                if key not in self._values:
                    insort(self._keys, key)
                self._values[key] = value
            elif self._values.pop(key, None) is not None:
                del self._keys[bisect_left(self._keys, key)]

    def flush(self) -> None:
        """What was written survives a crash now."""
        self._check()
        self._flushed = dict(self._values)

    def compact(self) -> None:
        """Nothing that was deleted is held."""
        self.flush()

    def after_crash(self) -> MemoryTable:
        """What the next process finds: what was flushed. This one takes no further call."""
        self._closed = True
        found = MemoryTable()
        found.write(self._flushed)
        found.flush()
        return found

    def stat(self) -> TableStat:
        """Bytes held."""
        return TableStat(disk_bytes=sum(len(k) + len(v) for k, v in self._values.items()))

    def close(self) -> None:
        """Flush, and take no further call."""
        if not self._closed:
            self.flush()
            self._closed = True

    def _check(self) -> None:
        if self._closed:
            raise StoreLostError("the table is closed")
