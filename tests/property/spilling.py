"""The same log folded twice: all in memory, and with most runs in a store that fails and is lost.

Every output and the state must be the same bytes. What a real owner does in the order of
`Residence`, this does at random moments: captures wait to be stored, runs leave at any time, some
are read beside the fold and some by it, the owner dies, the store falls behind or goes altogether.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.property.folding import bytes_of

from dalsegno.storage.errors import StoreBusyError, StoreFullError
from dalsegno.storage.memory import MemoryTable
from dalsegno.storage.ports import Table
from dalsegno.storage.warm import Place, WarmStore
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.record import Record
from dalsegno.streams.core.residence import Residence

IDENTITY = "cluster/topic/3"
Changes = dict[bytes, bytes | None]


class Spilling:
    """A partition with a store, and the changelog that both are restored from."""

    def __init__(
        self, rng: random.Random, table: Callable[[], Table], lose: Callable[[Table], Table | None]
    ) -> None:
        """`table`: an empty one. `lose`: what is left of one when the process ends; None: gone."""
        self.rng = rng
        self.make, self.lose = table, lose
        self.table = table()
        self.changelog: list[tuple[bytes, bytes | None]] = []
        self.pending: Changes = {}
        self.captured = 0
        self.left = self.offered = self.restarts = self.wiped = self.late = 0
        self.partition = self._opened()

    @property
    def residence(self) -> Residence:
        found = self.partition.residence
        assert found is not None
        return found

    def _opened(self) -> Partition:
        self.store = WarmStore(self.table, IDENTITY)
        place = self.store.place
        first = 0 if place is None else place.position
        while first < len(self.changelog):
            chunk = self.changelog[first : first + self.rng.randrange(1, 60)]
            first += len(chunk)
            while not self._taken(dict(chunk), Place(first, 0)):
                pass
        self.pending, self.captured = {}, 0
        return Partition.open(3, self.store)

    def apply(self, record: Record) -> bytes:
        if self.rng.random() < 0.6:
            ids = [record.key.decode(), "nobody"]
            missing = self.residence.missing(ids, record.at_ms)
            self.residence.offer(missing, self.store.load(missing))
            self.offered += len(missing)
        before = self.residence.late
        out = bytes_of(self.partition.apply(record))
        self.late += self.residence.late - before
        return out

    def capture(self) -> None:
        """A checkpoint that is committed, and waits to be stored."""
        parts = self.partition.capture()
        self.changelog += parts
        self.pending.update(parts)
        self.captured = self.residence.captures

    def compacted(self) -> dict[bytes, bytes]:
        """What the changelog says."""
        return {key: value for key, value in dict(self.changelog).items() if value is not None}

    def put(self) -> None:
        """Store what waits, if the store takes it."""
        if not self._taken(self.pending, Place(len(self.changelog), 0)):
            return
        self.pending = {}
        self.residence.stored(self.captured, self.rng.randrange(1 << 30))

    def _taken(self, parts: Changes, place: Place) -> bool:
        try:
            self.store.put(parts, place)
        except (StoreBusyError, StoreFullError):
            return False
        return True

    def leave(self) -> None:
        self.left += self.residence.leave(self.rng.choice((2_000, 30_000, 1 << 40)), 1 << 40)

    def crash(self) -> None:
        """The owner dies; the store is as it was at its last flush, or is gone."""
        self.restarts += 1
        kept = self.lose(self.table)
        self.wiped += kept is None
        self.table = self.make() if kept is None else kept
        self.partition = self._opened()


def crash_of_memory(rng: random.Random) -> Callable[[Table], Table | None]:
    """A table in memory loses what was not flushed, and sometimes all."""

    def lose(table: Table) -> Table | None:
        assert isinstance(table, MemoryTable)
        if rng.random() < 0.3:
            return None
        return table.after_crash()

    return lose


def run(spilling: Spilling, log: list[Record], outputs: list[bytes]) -> None:
    """Folds the log with random spilling; every output must be the one that is given."""
    rng, at = spilling.rng, 0
    while at < len(log):
        assert spilling.apply(log[at]) == outputs[at], f"other outputs of record {at}"
        at += 1
        if rng.random() < 0.30:
            spilling.capture()
        if rng.random() < 0.20:
            spilling.put()
        if rng.random() < 0.15:
            spilling.leave()
        if rng.random() < 0.05:
            spilling.store.flush()
        if rng.random() < 0.015:
            spilling.crash()
            at = spilling.partition.position
