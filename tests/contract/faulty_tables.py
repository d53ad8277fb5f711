"""A table that fails as told, around any other: slow, failing, lying, truncating, repeating."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dalsegno.storage.errors import StoreBusyError, StoreFullError
from dalsegno.storage.ports import Table, TableStat

Change = Callable[[bytes, bytes], bytes]


class FaultyTable:
    """`busy`, `full`: how many writes to refuse next; `fail_after`: not at once.

    `lie`: what becomes of values that are read (key, value). `twice`: every write is done twice.
    `waits`: called before each call.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.busy = 0
        self.full = 0
        self.lie: Change | None = None
        self.twice = False
        self.waits: Callable[[], None] = lambda: None
        self._later: list[tuple[int, str]] = []

    def fail_after(self, writes: int, how: str) -> None:
        self._later.append((writes, how))

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self.waits()
        found = self.table.get_many(keys)
        if self.lie is None:
            return found
        return [
            None if value is None else self.lie(key, value)
            for key, value in zip(keys, found, strict=True)
        ]

    def scan(self, first: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        self.waits()
        return self.table.scan(first, end, limit)

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        self.waits()
        self._later = [(left - 1, how) for left, how in self._later]
        for left, how in self._later:
            if left < 0:
                setattr(self, how, 1)
        self._later = [(left, how) for left, how in self._later if left >= 0]
        if self.busy:
            self.busy -= 1
            raise StoreBusyError("told to be busy")
        if self.full:
            self.full -= 1
            raise StoreFullError("told to be full")
        self.table.write(changes)
        if self.twice:
            self.table.write(changes)

    def compact(self) -> None:
        self.waits()
        self.table.compact()

    def flush(self) -> None:
        self.waits()
        self.table.flush()

    def stat(self) -> TableStat:
        return self.table.stat()

    def close(self) -> None:
        self.table.close()
