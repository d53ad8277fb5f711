"""Worlds whose engines have local databases, which fall back, are lost, and are read all along.

The databases decide nothing: a world with them runs the very schedule of the one without, unless
one breaks under an engine that runs. They draw from a source of chance of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from random import Random
from typing import Any, Final
from unittest.mock import patch

from tests.simulation.engine import Engine, Session
from tests.simulation.log import Entry
from tests.simulation.upgrade import code_for
from tests.simulation.world import World

from dalsegno.storage import warm_merge
from dalsegno.storage.errors import StoreLostError
from dalsegno.storage.memory import MemoryTable
from dalsegno.storage.warm import Place, WarmStore
from dalsegno.streams.core import plan_store, timers
from dalsegno.streams.core.partition import Partition

TOMBSTONES_MS: Final = 6_000
"""How long the changelog keeps what was deleted: runs are shorter here, and outages too."""

CHUNK: Final = 40
Parts = Sequence[tuple[bytes, bytes | None]]
# So small that a few runs pass every bound.
BOUNDS: Final = (
    (timers, "NEAR_MAX", 4),
    (timers, "WINDOW", 2),
    (timers, "_SLACK", 3),
    (plan_store, "_REMEMBERED", 0),
    (plan_store, "_SPARE", 0),
    (warm_merge, "INLINE_BYTES", 400),
)


class Lab:
    """A database of one engine for one partition, under the session that has it open."""

    def __init__(self, store: WarmStore, partition: Partition) -> None:
        assert partition.residence is not None
        self.store = store
        self.residence = partition.residence
        self.pending: dict[bytes, bytes | None] = {}
        self.place = Place(0, 0)
        self.captures = 0


class Disks:
    """All databases of a world. `breaks`: in how many batches of a thousand one is lost."""

    def __init__(self, world: TieredWorld, breaks: int) -> None:
        self.world = world
        self.rng = Random(f"{world.seed}/tiers")
        self.breaks = breaks
        self.tables: dict[tuple[str, int], MemoryTable] = {}
        self.labs: dict[int, Lab] = {}
        self.left = self.loaded = self.kept = self.wiped = 0
        self._written_ms: list[list[int]] = [[] for _ in world.changelogs]
        for changelog in world.changelogs:
            changelog.listeners.append(self._committed)

    def _committed(self, changelog: Any, position: int, parts: Sequence[object]) -> None:
        self._written_ms[changelog.number] += [self.world.scheduler.now_ms] * len(parts)

    def open(self, engine: Engine, number: int) -> Partition:
        """The partition as a new session finds it: what is left of the database, caught up."""
        place = engine.process.name, number
        table = self.tables.get(place)
        chance = self.rng.random()
        if table is not None and chance < 0.15:
            table = None
        elif table is not None:
            if chance > 0.8:
                table.close()
            table = table.after_crash()
        store = self._vouched(number, table)
        self.tables[place] = store._table  # type: ignore[assignment]
        self._catch_up(number, store, engine.read_to[number])
        known = engine.rules_known
        partition = code_for(known).open(number, store, rules_known=known)
        self.labs[id(partition)] = Lab(store, partition)
        return partition

    def _vouched(self, number: int, table: MemoryTable | None) -> WarmStore:
        if table is not None:
            store = WarmStore(table, f"sim/{number}")
            if store.place is not None and not self.too_old(store.place):
                self.kept += 1
                return store
        self.wiped += 1
        return WarmStore(MemoryTable(), f"sim/{number}")

    def too_old(self, place: Place) -> bool:
        return place.caught_up_ms < self.world.scheduler.now_ms - TOMBSTONES_MS // 2

    def _catch_up(self, number: int, store: WarmStore, end: int) -> None:
        """What the compacted changelog still has: the last of each key, and deletions while they
        are young.
        """
        history = self.world.changelogs[number].history[:end]
        last = {key: at for at, (key, _) in enumerate(history)}
        now_ms = self.world.scheduler.now_ms
        begun = store.place
        first = 0 if begun is None else begun.position
        written = self._written_ms[number]
        entries = [
            (key, value)
            for at, (key, value) in enumerate(history)
            if at >= first
            and at == last[key]
            and (value is not None or written[at] > now_ms - TOMBSTONES_MS)
        ]
        for at in range(0, len(entries), CHUNK):
            store.put(dict(entries[at : at + CHUNK]))
        store.put({}, Place(end, now_ms))

    def ahead(self, session: Session, batch: Sequence[Entry]) -> bool:
        """Before a batch: some runs leave, some are read ahead, and sometimes the disk breaks.

        False when that ended the session.
        """
        try:
            self._ahead(session, batch)
        except StoreLostError:
            session.end("store lost")
        return session.alive

    def _ahead(self, session: Session, batch: Sequence[Entry]) -> None:
        lab = self.labs[id(session.partition)]
        if self.rng.random() < 0.5:
            self.put(lab)
        if self.rng.random() < 0.5:
            self.left += lab.residence.leave(self.rng.choice((3_000, 1 << 40)), 1 << 60)
        if self.rng.random() < 0.5:
            missing = lab.residence.missing([entry.key for entry in batch], batch[-1].at_ms)
            self.loaded += len(missing)
            lab.residence.offer(missing, lab.store.load(missing))
        if self.rng.randrange(1_000) < self.breaks:
            lab.store.close()
            # Found at the next read, or when the next checkpoint cannot be put in.
            self.world.scheduler.after(500, lambda: session.end("store lost"))

    def keep(
        self, session: Session, parts: Sequence[tuple[bytes, bytes | None]], to: Place
    ) -> None:
        """A checkpoint is committed: it is put in now, or before some later batch."""
        lab = self.labs[id(session.partition)]
        lab.pending.update(parts)
        lab.place, lab.captures = to, lab.residence.captures
        if self.rng.random() < 0.5:
            self.put(lab)

    def put(self, lab: Lab) -> None:
        if lab.captures:
            try:
                lab.store.put(lab.pending, lab.place)
                if self.rng.random() < 0.3:
                    lab.store.flush()
            except StoreLostError:
                return
            lab.pending = {}
            lab.residence.stored(lab.captures, self.world.scheduler.now_ms)


class TieredWorld(World):
    """A world with databases; with `breaks` some are lost under engines that run."""

    def __init__(self, seed: int, *, large: bool = False, breaks: int = 0) -> None:
        super().__init__(seed, large=large)
        self.disks = Disks(self, breaks)

    def run(self) -> str:
        with ExitStack() as bounds:
            for module, name, value in BOUNDS:
                bounds.enter_context(patch.object(module, name, value))
            return super().run()
