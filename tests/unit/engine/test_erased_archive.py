"""An archive without an erased run: no byte of it, and a fold that comes to the same rest."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import msgspec
import pytest
from tests.property.troubled_log import TroubledLog

from dalsegno.schemas import values
from dalsegno.schemas.blob import Blob
from dalsegno.schemas.codec import decode, encode
from dalsegno.schemas.control import ArchiveConfirmed, ClockTick, ErasureRequested
from dalsegno.schemas.events import StepCompleted
from dalsegno.schemas.outputs import Outcome, Transition
from dalsegno.storage.archive.archive import Archive
from dalsegno.storage.archive.memory import MemoryObjects
from dalsegno.storage.archive.objects import ArchiveError, Trouble
from dalsegno.storage.archive.records import Kept, pack_records
from dalsegno.storage.archive.segment import Kind, SegmentWriter
from dalsegno.streams.core.actions import Audit, Output
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.record import Blank, Record
from dalsegno.streams.engine.archiving import records_of
from dalsegno.streams.engine.blanking import Stones, blank, look, record_of
from dalsegno.streams.engine.rewriting import blobs_named, rewrite, tidy

PARTITION = 0
END = 1 << 40


class TickedLog(TroubledLog):
    """The owner is there and ticks each second, so live time goes on as log time does."""

    def put(self, event, **how) -> list[Output]:  # type: ignore[no-untyped-def]
        until_ms = self.now_ms
        self.now_ms = self.records[-1].at_ms if self.records else until_ms
        while until_ms - self.now_ms > 1_000:
            self.now_ms += 1_000
            self.tick_number += 1
            super().put(ClockTick(partition=0, number=self.tick_number))
        self.now_ms = until_ms
        return super().put(event, **how)


class Written:
    """A log with erased runs in it, and an archive of it that was made before they were erased."""

    def __init__(
        self, seed: int, *, before: int = 1_200, after: int = 300, each: int = 350
    ) -> None:
        self.log = TickedLog(seed, before)
        rng = random.Random(seed)
        known = sorted({r.event.run_id for r in self.log.records if hasattr(r.event, "run_id")})
        self.erased = rng.sample(known, 2)
        for number, run_id in enumerate(self.erased):
            self.log.put(
                ErasureRequested(
                    run_id=run_id, erasure_id=f"e{number}", reason="asked", requested_by="ana"
                )
            )
            target = len(self.log.records) + after // 2
            while len(self.log.records) < target:
                self.log._something()
            late = next(r.event for r in self.log.records if r.key == run_id.encode())
            self.log.put(late)
        self.objects = MemoryObjects()
        self.archive = Archive(self.objects, "p")
        for first in range(0, len(self.log.records), each):
            self.archive.put(self.segment(first, first + each))

    @property
    def stones(self) -> Stones:
        return dict(self.log.partition.erasures)

    def segment(self, first: int, end: int) -> bytes:
        writer = SegmentWriter(PARTITION, 4)
        records = self.log.records[first:end]
        events = [
            Kept(r.offset, r.at_ms, r.key, encode(r.event), ((b"h", r.key),))  # type: ignore[arg-type]
            for r in records
        ]
        add(writer, Kind.EVENTS, events)
        told = [
            output.action.transition
            for outputs in self.log.by_record[first:end]
            for output in outputs
            if isinstance(output.action, Audit)
        ]
        base = first * 100
        add(
            writer,
            Kind.TRANSITIONS,
            [
                Kept(base + place, 0, each.run_id.encode(), encode(each))
                for place, each in enumerate(told)
            ],
        )
        return writer.finish(records[-1].at_ms, base + len(told))

    def bytes_of_all(self) -> bytes:
        """Everything in the bucket, unpacked, with the names."""
        out = b"".join(stat.key.encode() for stat in self.objects.list(""))
        for manifest in self.archive.manifests():
            index = self.archive.index(manifest)
            out += b"".join(self.archive.read(manifest, entry) for entry in index.entries)
        return out

    def folded(self) -> tuple[Partition, list[list[Output]]]:
        partition, outputs = Partition(PARTITION), []
        for manifest in self.archive.manifests(PARTITION):
            for kept in records_of(self.archive, manifest, Kind.EVENTS):
                found = record_of(kept)
                # What was not blanked is read by the same reader as before: its event is known.
                record = found if isinstance(found, Record) else self.log.records[kept.offset]
                outputs.append(partition.apply(record))
        return partition, outputs

    def names(self, value: bytes) -> list[str]:
        """Erased runs that the bytes name; `r1` is no part of `r10`."""
        import re

        found = set(re.findall(rb"r\d+", value))
        return [name for name in self.erased if name.encode() in found]


def add(writer: SegmentWriter, kind: Kind, records: Sequence[Kept]) -> None:
    if records:
        writer.add(
            kind, "", pack_records(records),
            first=records[0].offset, last=records[-1].offset, count=len(records),
        )  # fmt: skip


def transitions(outputs: list[list[Output]]) -> Mapping[str, list[Transition]]:
    found: dict[str, list[Transition]] = {}
    for each in outputs:
        for output in each:
            if isinstance(output.action, Audit):
                # Predictions go by durations, of which those of erased runs are gone.
                said = msgspec.structs.replace(output.action.transition, detail="")
                found.setdefault(said.run_id, []).append(said)
    return found


@pytest.mark.parametrize("seed", range(8))
def test_a_fold_over_a_rewritten_archive_comes_to_the_same_without_the_erased(seed: int) -> None:
    written = Written(seed)
    assert written.names(written.bytes_of_all()) == written.erased
    done = rewrite(written.archive, PARTITION, written.stones, END)
    assert done.records > 0
    assert written.names(written.bytes_of_all()) == []
    for manifest in written.archive.manifests():
        written.archive.verify(manifest)

    live = written.log.partition
    again, outputs = written.folded()
    assert again.counts == live.counts
    assert (again.waiting, again.position, again.log_ms) == (
        live.waiting, live.position, live.log_ms,
    )  # fmt: skip
    assert again.erasures == live.erasures
    assert set(again.run_ids()) == set(live.run_ids())
    mine, theirs = transitions(outputs), transitions(written.log.by_record)
    assert {name: said for name, said in mine.items() if not name.startswith("erased:")} == {
        name: said
        for name, said in theirs.items()
        if name not in written.erased and not name.startswith("erased:")
    }
    for run_id in live.run_ids():
        one, other = again.run(run_id), live.run(run_id)
        assert one is not None
        assert other is not None
        assert (one.state, one.context, one.run_version) == (
            other.state, other.context, other.run_version,
        )  # fmt: skip


def test_again_it_finds_nothing_more() -> None:
    written = Written(3)
    rewrite(written.archive, PARTITION, written.stones, END)
    names = [manifest.segment for manifest in written.archive.manifests()]
    assert rewrite(written.archive, PARTITION, written.stones, END) == (0, 0, 0)
    assert [manifest.segment for manifest in written.archive.manifests()] == names


class Crash(Exception):  # noqa: N818 - what it is
    """The engine dies here."""


class Failing(MemoryObjects):
    """Dies, or fails, before the n-th call that changes something."""

    def __init__(self, held: MemoryObjects, calls: int, error: Exception) -> None:
        super().__init__()
        self._objects = held._objects
        self._left = calls
        self._error = error

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise self._error

    def put(self, key: str, data: bytes) -> None:
        self._count()
        super().put(key, data)

    def delete(self, keys: Sequence[str]) -> Mapping[str, ArchiveError]:
        self._count()
        return super().delete(keys)


ERRORS: list[Callable[[], Exception]] = [
    Crash,
    lambda: ArchiveError(Trouble.UNREACHABLE, "p", "nobody answers"),
]


@pytest.mark.parametrize("error", ERRORS)
def test_a_crash_between_any_two_steps_loses_no_event_and_the_next_owner_finishes(
    error: Callable[[], Exception],
) -> None:
    calls = 0
    while True:
        written = Written(1, each=600)
        failing = Archive(Failing(written.objects, calls, error()), "p")
        try:
            rewrite(failing, PARTITION, written.stones, END)
        except (Crash, ArchiveError):
            offsets = [
                kept.offset
                for manifest in written.archive.manifests(PARTITION)
                for kept in records_of(written.archive, manifest, Kind.EVENTS)
            ]
            assert offsets == [record.offset for record in written.log.records], calls
            rewrite(written.archive, PARTITION, written.stones, END)
            assert written.names(written.bytes_of_all()) == []
            assert not list(written.archive.replaced(PARTITION))
            held = written.archive.held(PARTITION)
            assert set(held.segments) == set(held.manifests)
            again, _ = written.folded()
            assert again.counts == written.log.partition.counts
            calls += 1
            continue
        break
    assert calls > 10, "every step was one to die before"


def test_the_state_of_an_erased_run_leaves_and_a_segment_of_nothing_else_goes() -> None:
    log = TroubledLog(1, 40)
    log.put(ErasureRequested(run_id="gone", erasure_id="e", reason="r", requested_by="ana"))
    stones = dict(log.partition.erasures)
    archive = Archive(MemoryObjects(), "p")
    for names in (("gone",), ("gone", "other")):
        writer = SegmentWriter(PARTITION, 4)
        for name in names:
            writer.add(Kind.RUN, name, b"state of " + name.encode(), first=9, last=9, count=1)
        archive.put(writer.finish(len(names)))
    assert rewrite(archive, PARTITION, stones, END) == (2, 0, 2)
    (left,) = archive.manifests()
    assert list(left.run_ids) == ["other"]
    assert len(left.replaces) == 1
    assert archive.run(left, "other") == b"state of other"


def test_the_blobs_that_an_erased_run_has_named_are_known_until_it_is_rewritten() -> None:
    log = TroubledLog(1, 30)
    log.put(ErasureRequested(run_id="gone", erasure_id="e", reason="r", requested_by="ana"))
    stones = dict(log.partition.erasures)
    blobs = [Blob.of(name) for name in (b"first", b"second", b"of another run")]
    archive = Archive(MemoryObjects(), "p")
    for place, (run_id, blob) in enumerate(zip(("gone", "gone", "other"), blobs, strict=True)):
        ops = values.pack([["set", ["f"], {"deep": [blob]}]])
        event = StepCompleted(run_id=run_id, step="s", epoch=1, ops=ops)
        writer = SegmentWriter(PARTITION, 4)
        add(writer, Kind.EVENTS, [Kept(place, 5, run_id.encode(), encode(event))])
        archive.put(writer.finish(place + 1))
    assert blobs_named(archive, PARTITION, stones) == {blobs[0].digest, blobs[1].digest}
    rewrite(archive, PARTITION, stones, END)
    assert blobs_named(archive, PARTITION, stones) == set()


def test_what_replaced_segments_are_still_there_is_removed() -> None:
    written = Written(2)
    old = next(iter(written.archive.manifests()))
    data = written.archive.data(old)
    rewrite(written.archive, PARTITION, written.stones, END)
    # Another owner was slow: it puts what has been replaced meanwhile.
    written.archive.put(data)
    assert written.archive.replaced(PARTITION) == [old.segment]
    assert old.segment not in [each.segment for each in written.archive.manifests()]
    assert tidy(written.archive, PARTITION) == 1
    assert written.names(written.bytes_of_all()) == []


def test_the_word_that_states_are_archived_names_an_erased_run_no_more() -> None:
    log = TroubledLog(1, 30)
    log.put(ErasureRequested(run_id="gone", erasure_id="e", reason="r", requested_by="ana"))
    stones = dict(log.partition.erasures)
    said = [
        ArchiveConfirmed(
            partition=0, number=1, segment="s", digest=b"d", first_offset=0, last_offset=1,
            run_ids=names, run_digests=tuple(name.encode() for name in names),
        )
        for names in (("a", "gone", "b"), ("gone",), ("a",))
    ]  # fmt: skip
    writer = SegmentWriter(PARTITION, 4)
    add(writer, Kind.EVENTS, [Kept(n, 5, b"0", encode(each)) for n, each in enumerate(said)])
    data = writer.finish(1)
    assert look(data, stones).records == 2
    made = blank(data, stones, {})
    assert made is not None
    archive = Archive(MemoryObjects(), "p")
    first, second, third = records_of(archive, archive.put(made), Kind.EVENTS)
    read = record_of(first)
    assert isinstance(read, Record)
    assert isinstance(read.event, ArchiveConfirmed)
    assert (read.event.run_ids, read.event.run_digests) == (("a", "b"), (b"a", b"b"))
    whole = record_of(second)
    assert isinstance(whole, Record)
    assert whole.event == Blank("ArchiveConfirmed", Outcome.APPLIED)
    assert decode(third.value or b"") == said[2]


def test_a_name_that_was_replaced_leads_to_what_replaced_it() -> None:
    written = Written(4)
    old = next(iter(written.archive.manifests()))
    rewrite(written.archive, PARTITION, written.stones, END)
    new = written.archive.manifest(old.segment)
    assert old.segment in new.replaces
    with pytest.raises(ArchiveError, match="no such segment"):
        written.archive.manifest(old.segment.replace("00000/0", "00001/0", 1))


def test_outcomes_that_no_transition_names_are_repeats_or_no_events() -> None:
    log = TroubledLog(1, 30)
    log.put(ErasureRequested(run_id="gone", erasure_id="e", reason="r", requested_by="ana"))
    (stone,) = dict(log.partition.erasures).values()
    writer = SegmentWriter(PARTITION, 4)
    request = encode(log.records[-1].event)  # type: ignore[arg-type]
    add(
        writer,
        Kind.EVENTS,
        [
            Kept(1, 5, b"gone", b"garbage"),
            Kept(2, 5, b"gone", request),
            Kept(stone.offset, 6, b"gone", request),
            Kept(stone.offset + 1, 7, b"gone", request),
            Kept(stone.offset + 2, 7, b"gone", b"garbage"),
            Kept(stone.offset + 3, 7, b"other", b"kept"),
        ],
    )
    data = writer.finish(1)
    stones = dict(log.partition.erasures)
    assert look(data, stones).records == 5
    made = blank(data, stones, {})
    assert made is not None
    archive = Archive(MemoryObjects(), "p")
    kept = list(records_of(archive, archive.put(made), Kind.EVENTS))
    assert [(each.kind, each.outcome) for each in kept] == [
        ("unreadable", Outcome.DEAD_LETTERED), ("ErasureRequested", Outcome.DUPLICATE),
        ("ErasureRequested", Outcome.APPLIED), ("ErasureRequested", Outcome.DUPLICATE),
        ("unreadable", Outcome.DEAD_LETTERED), ("", ""),
    ]  # fmt: skip
    assert kept[-1].value == b"kept"
    assert decode(request) == log.records[-1].event
