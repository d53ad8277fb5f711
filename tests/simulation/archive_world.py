"""Owners of one partition, who archive it, over a store that misbehaves and topics that forget.

The archiver, the segmenter, the sweep and the fold are the product's. The world decides who acts,
where an owner dies (before any request to the store, while his word is on its way to the log), what
a request comes to, and how soon the topics forget: at once, as soon as the log says that they may.
After each act every event is where it must be, byte for byte. Virtual time, one seed, one schedule.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack
from itertools import chain
from random import Random
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

import msgspec
from benchmarks.engine_lab.load import run_events
from tests.contract.faulty_objects import Fault
from tests.simulation.archive_checks import read_back
from tests.simulation.archive_log import ROOM, Reader, Topic, Trails, observed_events, remember
from tests.simulation.archive_owner import DiedError, Job, Owner, Quiet, directly
from tests.simulation.promises import BrokenPromiseError

from dalsegno.schemas.codec import encode
from dalsegno.schemas.control import ArchiveConfirmed, RunRestored
from dalsegno.storage.archive.archive import Archive
from dalsegno.storage.archive.memory import MemoryObjects
from dalsegno.storage.archive.objects import ArchiveError
from dalsegno.storage.archive.records import Kept
from dalsegno.storage.archive.segment import Damage, Kind, SegmentCorrupt
from dalsegno.streams.agents import archive as archive_agent
from dalsegno.streams.agents import archive_restore, archive_states, archive_sweep
from dalsegno.streams.core.actions import Audit
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.record import Record, Unreadable
from dalsegno.streams.core.state_codec import StateCorrupt
from dalsegno.streams.core.warm import WarmLost
from dalsegno.streams.engine import archiving
from dalsegno.streams.engine.archiving import records_of
from dalsegno.streams.engine.settings import EngineSettings
from dalsegno.streams.engine.state_segments import States

START_MS: Final = 1_700_000_000_000
RUNS: Final = 5
STEPS: Final = 240
QUIET_STEPS: Final = 40
"""So long clients send much, and so long next to nothing: runs come to rest."""
SEGMENT_BYTES: Final = 1_500
ORPHAN_AGE_MS: Final = 60_000
OWNERS_MAX: Final = 3
REQUESTS_DEEP: Final = 2
"""So many owners may be at the store within one another's requests."""
_TROUBLES: Final = (Fault.FAIL, Fault.LOST_ANSWER, Fault.LIE, Fault.TRUNCATE, Fault.REPEAT)


class ArchiveWorld:
    """`ArchiveWorld(seed).run()` raises `BrokenPromiseError`, or ends with everything archived."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.now_ms = START_MS
        self.trouble = self.rng.choice((0.0, 0.1, 0.15, 0.2))
        self.overtaken = self.rng.random() < 0.1
        settings = EngineSettings()
        small = {
            "bucket": "b",
            "segment_bytes": SEGMENT_BYTES,
            "interval_ms": 100,
            "sweep_interval_ms": 5_000,
            "orphan_age_ms": ORPHAN_AGE_MS,
            "idle_ms": self.rng.choice((50, 50, 1_000)),
        }
        archive = settings.archive.model_copy(update=small)
        self.settings = settings.model_copy(update={"archive": archive})
        self.events, self.transitions = Topic(), Topic()
        self.bucket = MemoryObjects(lambda: self.now_ms)
        self.honest = Archive(self.bucket, "p")
        self.reference = Partition(0)
        self.audited: list[bytes] = []
        self.confirmed: list[ArchiveConfirmed] = []
        self.checkpoint: dict[bytes, bytes] = {}
        self.epoch = 0
        self.lost_to = 0
        self._deep = 0
        self.plain = Partition(0)
        self._quiet = 0
        self._trails: Trails = {}
        self._plain_trails: Trails = {}
        self._cold: dict[str, str] = {}
        self._bytes: dict[str, bytes] = {}
        self.spawned: list[Job] = []
        self._runs = [run_events(f"run-{number}") for number in range(RUNS)]
        self._runs += [observed_events(f"watched-{number}") for number in range(RUNS)]
        self._seen: dict[str, bytes] = {}
        self.owners = [Owner(self, 0)]
        self.died = self.nested = self.left = self.back = self._away = self._markers = 0

    def append(self, event: Any) -> int:
        """A record at the end of the log; the reference folds it at once."""
        key = getattr(event, "run_id", "").encode()
        value = b"not an event" if isinstance(event, Unreadable) else encode(event)
        offset = self.events.append(self.now_ms, key, value, event)
        known = self.reference.archived_to
        for output in self.reference.apply(self.record(offset)):
            if isinstance(output.action, Audit):
                self.audited.append(encode(output.action.transition))
                remember(self._trails, output.action.transition)
        self.delivered(offset, event)
        if self.reference.archived_to != known:
            self.confirmed.append(event)
        return offset

    def delivered(self, offset: int, event: Any) -> None:
        """P1; and the same log without anything of states, in which no run ever leaves."""
        reference = self.reference
        if reference.delivered + self._markers != offset + 1:
            raise BrokenPromiseError(f"P1: {reference.delivered} outcomes of {offset + 1} records")
        about_states = isinstance(event, RunRestored) or getattr(event, "run_ids", ())
        self.left += reference.archived.count > self._away
        self.back += reference.archived.count < self._away
        self._away = reference.archived.count
        record = self.record(offset)
        if about_states:
            record = msgspec.structs.replace(record, event=ROOM)
        for output in self.plain.apply(record):
            if isinstance(output.action, Audit):
                remember(self._plain_trails, output.action.transition)
        for run_id in getattr(event, "run_ids", (getattr(event, "run_id", ""),)):
            self.check_run(run_id)

    def record(self, offset: int) -> Record:
        message = self.events.messages[offset]
        return Record(offset, message.at_ms, message.key_bytes, message.value_bytes, message.event)

    def client(self) -> None:
        """Some events of some runs, and a record that is none."""
        for _ in range(self.rng.randrange(1, 6)):
            if self.rng.random() < 0.05:
                self.events.mark(self.now_ms)
                self._markers += 1
            elif self.rng.random() < 0.05:
                self.append(Unreadable("bad_frame", "no event"))
            elif self._runs and (event := next(self.rng.choice(self._runs), None)) is not None:
                self.append(event)

    def request(self, owner: Owner, name: str) -> Fault | None:
        rng = self.rng
        if rng.random() < self.trouble / 3:
            raise DiedError
        if len(self.owners) > 1 and self._deep < REQUESTS_DEEP and rng.random() < 0.1:
            self._deep += 1
            self.nested += 1
            self.now_ms += rng.choice((0, 0, 0, 0, 0, 0, 0, 2 * ORPHAN_AGE_MS))
            try:
                self.act(rng.choice([each for each in self.owners if each is not owner]))
            finally:
                self._deep -= 1
            if owner not in self.owners:
                raise DiedError
        if rng.random() >= (2 * self.trouble if name == "list" else self.trouble):
            return None
        fault = rng.choice(_TROUBLES)
        if name == "replace" and fault in (Fault.LIE, Fault.TRUNCATE):
            return None  # it would damage what it has confirmed: no order of ours can help
        return fault

    def act(self, owner: Owner) -> None:
        """One thing that an owner does."""
        rng = self.rng
        chance = rng.random()
        try:
            if chance < 0.25:
                owner.read(rng.randrange(1, 12))
            elif chance < 0.45:
                owner.put_out(rng.randrange(1, 20))
            elif chance < 0.6:
                owner.save()
            elif chance < 0.75:
                owner.fetch()
            elif chance < 1 - self.trouble / 10:
                owner.archive()
            else:
                owner.loses_its_database()
        except (DiedError, WarmLost):
            self.dies(owner)
        self.check()

    def dies(self, owner: Owner) -> None:
        """What he had in flight goes with him."""
        self.died += 1
        for job in owner.fetches:
            job.close()
        if owner in self.owners:
            self.owners.remove(owner)
        if not self.owners:
            self.takes_over()

    def takes_over(self) -> None:
        """Another engine owns the partition; the one before may not have heard of it."""
        self.epoch += 1
        self.owners.append(Owner(self, self.epoch))
        for owner in self.owners[:-OWNERS_MAX]:
            self.dies(owner)

    def step(self) -> None:
        rng = self.rng
        chance = rng.random()
        self.now_ms += rng.choice((1, 50, 200, 2_000))
        if chance < (0.02 if self._quiet else 0.25):
            self.client()
        elif chance < 0.8:
            self.act(rng.choice(self.owners))
        elif chance < 0.83 and self.trouble:
            self.takes_over()
        elif chance < 0.86 and self.trouble:
            self.dies(rng.choice(self.owners))
        elif chance < 0.92:
            self.now_ms += 2 * ORPHAN_AGE_MS
        else:
            self.forget()
        self.check()

    def forget(self) -> None:
        """The topics keep no more than the log says that they must."""
        self.events.low = max(self.events.low, min(self.reference.archived_to, self.slowest()))
        if self.overtaken and self.rng.random() < 0.1 and self.reference.archived_to:
            self.events.low = self.lost_to = max(self.events.low, self.slowest())
        ends = [
            manifest.transitions_to
            for manifest in map(self._manifest, self.honest.names(0))
            if manifest is not None and manifest.last_offset < self.reference.archived_to
        ]
        self.transitions.low = max(self.transitions.low, max(ends, default=0))

    def slowest(self) -> int:
        """Where the next owner would begin: it needs what follows."""
        return min([self.saved(), *(owner.fold.position for owner in self.owners)])

    def saved(self) -> int:
        return (
            Partition.restore(0, list(self.checkpoint.items())).position if self.checkpoint else 0
        )

    def _manifest(self, name: str) -> Any:
        try:
            return self.honest.manifest(name)
        except SegmentCorrupt:
            return None

    def check_run(self, run_id: str) -> None:
        """A run that left has its state in the bucket; any other is as if it never had."""
        found = self.reference.run(run_id)
        self._cold.pop(run_id, None)
        if found is None:
            return
        if found.archived is not None:
            where = self.reference._runs.get(run_id).head
            try:
                States(self.honest).parts(where.segment, run_id, where.digest)
            except (ArchiveError, SegmentCorrupt) as error:
                raise BrokenPromiseError(f"P1: run {run_id} is in no tier: {error}") from error
            self._cold[run_id] = f"p/segments/{where.segment}"
            return
        plain = self.plain.run(run_id)
        if self._trails.get(run_id) != self._plain_trails.get(run_id):
            raise BrokenPromiseError(f"P4: what became of run {run_id} is another story")
        if plain is None or (plain.state, plain.context) != (found.state, found.context):
            raise BrokenPromiseError(f"P2: run {run_id} came back as another")

    def check_cold(self) -> None:
        """What runs wait for in the archive is still there, and is what it was."""
        for run_id, key in self._cold.items():
            stat = self.bucket.stat(key)
            data = None if stat is None else self.bucket.get(key)
            if data is None or self._bytes.setdefault(key, data) != data:
                raise BrokenPromiseError(f"P1: the state of run {run_id} is no more")

    def check(self) -> None:
        """What the log has confirmed is in the bucket, whole, and each event is as it was."""
        held: dict[int, Kept] = {}
        self.check_cold()
        for event in self.confirmed:
            try:
                manifest = self.honest.manifest(event.segment)
                self._verify_once(manifest)
            except (ArchiveError, SegmentCorrupt) as error:
                raise BrokenPromiseError(f"P2: a confirmed segment: {error}") from error
            if manifest.digest != event.digest:
                raise BrokenPromiseError(f"P10: {event.segment} is not what was confirmed")
        if len(self.confirmed) == len(self._seen):
            return
        for event in self.confirmed:
            self._seen[event.segment] = event.digest
            for each in records_of(self.honest, self.honest.manifest(event.segment), Kind.EVENTS):
                held[each.offset] = each
        self._compare(held)

    def _verify_once(self, manifest: Any) -> None:
        """Its bytes, each time; what is in it, when it is new."""
        key = f"p/segments/{manifest.segment}"
        if self._seen.get(manifest.segment) is None:
            self.honest.verify(manifest)
        elif self.bucket.stat(key) is None or self.bucket.get(key)[:5] != b"dsg1\x01":
            raise SegmentCorrupt(key, Damage.TRUNCATED, "it is gone, or another one")

    def _compare(self, held: dict[int, Kept]) -> None:
        first = self.confirmed[0].first_offset if self.confirmed else 0
        for offset in range(first, self.reference.archived_to):
            message, kept = self.events.messages[offset], held.get(offset)
            if message.marker:
                continue
            if kept is None:
                raise BrokenPromiseError(f"P1: event {offset} is in no confirmed segment")
            if (kept.at_ms, kept.key, kept.value) != (
                message.at_ms, message.key_bytes, message.value_bytes,
            ):  # fmt: skip
                raise BrokenPromiseError(f"P2: event {offset} is archived as another")

    def run(self) -> ArchiveWorld:
        """Trouble, calm, rest."""
        with ExitStack() as patches:
            clock = SimpleNamespace(
                monotonic=lambda: self.now_ms / 1_000, time_ns=lambda: self.now_ms * 1_000_000
            )
            loop = SimpleNamespace(Event=asyncio.Event, create_task=self.spawn)
            patches.enter_context(patch.object(archive_restore, "asyncio", loop))
            for module in (archive_agent, archive_sweep, archive_states, archive_restore):
                patches.enter_context(patch.object(module, "in_daemon_thread", directly))
                patches.enter_context(patch.object(module, "time", clock))
                patches.enter_context(patch.object(module, "log", Quiet()))
            topics = self.settings.topics
            found = {topics.events: self.events, topics.transitions: self.transitions}
            patches.enter_context(patch.object(archiving, "LogReader", lambda _: Reader(found)))
            patches.enter_context(patch.object(archiving, "log", Quiet()))
            patches.callback(self._close_jobs)
            try:
                for number in range(STEPS):
                    self._quiet = number // QUIET_STEPS % 2
                    self.step()
                self.rest()
            except StateCorrupt as error:
                raise BrokenPromiseError(f"P10: {error}") from error
        return self

    def _close_jobs(self) -> None:
        """Also of a world that ends in the middle."""
        for job in chain(self.spawned, *(owner.fetches for owner in self.owners)):
            job.close()

    def spawn(self, work: Coroutine[Any, Any, None]) -> Job:
        """A task of the product's: its owner goes on with it."""
        self.spawned.append(Job(work))
        return self.spawned[-1]

    def rest(self) -> None:
        """The store behaves, and in the end one owner is left: all is archived, and reads back."""
        self.takes_over()
        for number in range(80):
            self.now_ms += 200
            self.trouble *= number < 40
            if number == 20:
                self.client()
            self.act(self.rng.choice(self.owners if number % 2 else self.owners[-1:]))
        for zombie in [each for each in self.owners if each.epoch != self.epoch]:
            self.dies(zombie)
        if self.owners[0].broken:
            self.dies(self.owners[0])
        (owner,) = self.owners
        for number in range(20):
            self.now_ms += 30_000
            if number == 5:
                for event in chain.from_iterable(self._runs):
                    self.append(event)
            for _ in range(12):
                owner.fetch()
            owner.read(1_000)
            owner.put_out(1_000)
            owner.save()
            for _ in range(6):
                owner.archive()
            self.check()
        left = self.events.end - self.reference.archived_to
        if self.lost_to > self.reference.archived_to:
            return  # a retention limit overtook the archive, which stands still and says so
        if self.reference.archived.wanted_count or self._cold:
            raise BrokenPromiseError("P6: runs are wanted, and nobody brings them back")
        if left > 1:
            raise BrokenPromiseError(f"P6: {left} events are not archived, and nobody is at it")
        read_back(self)


def worlds(seeds: range) -> Iterator[ArchiveWorld]:
    """A world for each seed, through to its end."""
    for seed in seeds:
        yield ArchiveWorld(seed).run()
