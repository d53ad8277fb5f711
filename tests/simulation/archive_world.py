"""Owners of one partition, who archive it, over a store that misbehaves and topics that forget.

The archiver, the segmenter, the sweep and the fold are the product's. The world decides who acts,
where an owner dies (before any request to the store, while his word is on its way to the log), what
a request comes to, and how soon the topics forget: at once, as soon as the log says that they may.
After each act every event is where it must be, byte for byte. Virtual time, one seed, one schedule.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from random import Random
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

from benchmarks.engine_lab.load import run_events
from tests.contract.faulty_objects import Fault
from tests.simulation.archive_log import Reader, Topic
from tests.simulation.archive_owner import DiedError, Owner, Quiet, directly
from tests.simulation.promises import BrokenPromiseError

from dalsegno.ops.archived import ArchiveGap, chain_of, transitions_of
from dalsegno.schemas.codec import encode
from dalsegno.schemas.control import ArchiveConfirmed
from dalsegno.storage.archive.archive import Archive
from dalsegno.storage.archive.memory import MemoryObjects
from dalsegno.storage.archive.objects import ArchiveError
from dalsegno.storage.archive.records import Kept
from dalsegno.storage.archive.segment import Damage, Kind, SegmentCorrupt
from dalsegno.streams.agents import archive as archive_agent
from dalsegno.streams.agents import archive_sweep
from dalsegno.streams.core.actions import Audit
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.record import Record, Unreadable
from dalsegno.streams.engine import archiving
from dalsegno.streams.engine.archiving import records_of
from dalsegno.streams.engine.settings import EngineSettings

START_MS: Final = 1_700_000_000_000
RUNS: Final = 5
STEPS: Final = 220
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
        self._runs = [run_events(f"run-{number}") for number in range(RUNS)]
        self._seen: dict[str, bytes] = {}
        self.owners = [Owner(self, 0)]
        self.died = self.nested = 0

    def append(self, event: Any) -> int:
        """A record at the end of the log; the reference folds it at once."""
        key = getattr(event, "run_id", "").encode()
        value = b"not an event" if isinstance(event, Unreadable) else encode(event)
        offset = self.events.append(self.now_ms, key, value, event)
        known = self.reference.archived_to
        for output in self.reference.apply(self.record(offset)):
            if isinstance(output.action, Audit):
                self.audited.append(encode(output.action.transition))
        if self.reference.archived_to != known:
            self.confirmed.append(event)
        return offset

    def record(self, offset: int) -> Record:
        message = self.events.messages[offset]
        return Record(offset, message.at_ms, message.key_bytes, message.value_bytes, message.event)

    def client(self) -> None:
        """Some events of some runs, and a record that is none."""
        for _ in range(self.rng.randrange(1, 6)):
            if self.rng.random() < 0.05:
                self.append(Unreadable("bad_frame", "no event"))
            elif self._runs and (event := next(self.rng.choice(self._runs), None)) is not None:
                self.append(event)

    def request(self, owner: Owner, name: str) -> Fault | None:
        rng = self.rng
        if rng.random() < self.trouble / 3:
            raise DiedError
        if len(self.owners) > 1 and self._deep < REQUESTS_DEEP and rng.random() < 0.25:
            self._deep += 1
            self.nested += 1
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
            else:
                owner.archive()
        except DiedError:
            self.dies(owner)
        self.check()

    def dies(self, owner: Owner) -> None:
        """What he had in flight goes with him."""
        self.died += 1
        if owner in self.owners:
            self.owners.remove(owner)
        if not self.owners:
            self.takes_over()

    def takes_over(self) -> None:
        """Another engine owns the partition; the one before may not have heard of it."""
        self.epoch += 1
        self.owners.append(Owner(self, self.epoch))
        del self.owners[:-OWNERS_MAX]

    def step(self) -> None:
        rng = self.rng
        chance = rng.random()
        self.now_ms += rng.choice((1, 50, 200, 2_000))
        if chance < 0.2:
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

    def check(self) -> None:
        """What the log has confirmed is in the bucket, whole, and each event is as it was."""
        held: dict[int, Kept] = {}
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
            if kept is None:
                raise BrokenPromiseError(f"P1: event {offset} is in no confirmed segment")
            if (kept.at_ms, kept.key, kept.value) != (
                message.at_ms, message.key_bytes, message.value_bytes,
            ):  # fmt: skip
                raise BrokenPromiseError(f"P2: event {offset} is archived as another")

    def run(self) -> ArchiveWorld:
        """Trouble, calm, rest."""
        with ExitStack() as patches:
            clock = SimpleNamespace(monotonic=lambda: self.now_ms / 1_000)
            for module in (archive_agent, archive_sweep):
                patches.enter_context(patch.object(module, "in_daemon_thread", directly))
                patches.enter_context(patch.object(module, "time", clock))
                patches.enter_context(patch.object(module, "log", Quiet()))
            topics = self.settings.topics
            found = {topics.events: self.events, topics.transitions: self.transitions}
            patches.enter_context(patch.object(archiving, "LogReader", lambda _: Reader(found)))
            patches.enter_context(patch.object(archiving, "log", Quiet()))
            for _ in range(STEPS):
                self.step()
            self.rest()
        return self

    def rest(self) -> None:
        """The store behaves, and in the end one owner is left: all is archived, and reads back."""
        self.trouble = 0.0
        self.takes_over()
        for _ in range(40):
            self.now_ms += 200
            self.act(self.rng.choice(self.owners))
        self.owners = [each for each in self.owners if each.epoch == self.epoch]
        if not self.owners:
            self.takes_over()
        (owner,) = self.owners
        for _ in range(20):
            self.now_ms += 30_000
            owner.read(1_000)
            owner.put_out(1_000)
            owner.save()
            for _ in range(3):
                owner.archive()
            self.check()
        left = self.events.end - self.reference.archived_to
        if self.lost_to > self.reference.archived_to:
            return  # a retention limit overtook the archive, which stands still and says so
        if left > 1:
            raise BrokenPromiseError(f"P6: {left} events are not archived, and nobody is at it")
        self._read_back()

    def _read_back(self) -> None:
        """What `audit` and `archive verify` do, with nothing but the bucket."""
        try:
            chain = chain_of(self.honest, 0)
        except (ArchiveGap, SegmentCorrupt) as error:
            raise BrokenPromiseError(f"P2: {error}") from error
        if not chain or chain[-1].last_offset + 1 < self.reference.archived_to:
            raise BrokenPromiseError("P2: the chain ends before what was confirmed")
        kept = [each.value or b"" for each in transitions_of(self.honest, chain)]
        if kept != self.audited[: len(kept)]:
            raise BrokenPromiseError("P2: archived transitions are not those of the fold")
        if len(kept) < len(self.audited) - 4:
            raise BrokenPromiseError(f"P1: {len(kept)} of {len(self.audited)} are archived")
        held = self.honest.held(0)
        orphans = {*held.segments} - {*held.manifests}
        if orphans:
            raise BrokenPromiseError(f"P11: {len(orphans)} orphans are left")


def worlds(seeds: range) -> Iterator[ArchiveWorld]:
    """A world for each seed, through to its end."""
    for seed in seeds:
        yield ArchiveWorld(seed).run()
