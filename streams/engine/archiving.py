"""The next segment of a partition: its events, and the transitions that came of them.

Blocking: it reads Kafka and writes S3 on a thread of its own. What it does is repeatable: a segment
is named by what it holds, and only the log says which of two counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import structlog

from dalsegno.storage.archive.archive import Archive, Manifest, end_of, offsets_of
from dalsegno.storage.archive.objects import ArchiveError, Trouble
from dalsegno.storage.archive.records import Kept, pack_records, unpack_records
from dalsegno.storage.archive.segment import Kind, SegmentCorrupt, SegmentWriter
from dalsegno.streams.core.sequence import Sequence
from dalsegno.streams.engine.blanking import Stones, blank, look
from dalsegno.streams.engine.header_names import LenientHeaders
from dalsegno.streams.engine.logread import LogReader
from dalsegno.streams.engine.raw import RawEvent, raw_event
from dalsegno.streams.engine.restore import sequence_in
from dalsegno.streams.engine.settings import EngineSettings

log = structlog.get_logger(__name__)

BLOCK_BYTES: Final = 4 << 20
"""Records are packed and compressed so many at a time."""
_OVERHEAD_BYTES: Final = 48


class Wanted(NamedTuple):
    """What is to be archived: events from `first` up to `end` (exclusive), without what they have
    of the runs that were `erased`.
    """

    partition: int
    first: int
    end: int
    erased: Stones = {}  # noqa: RUF012 - nobody adds to it


class Segmenter:
    """Makes segments for the partitions of one engine. For one thread."""

    def __init__(self, settings: EngineSettings, partitions: int, archive: Archive) -> None:
        self._settings = settings
        self._partitions = partitions
        self._archive = archive
        self._lenient = LenientHeaders(settings)
        self._transitions: dict[int, tuple[int, int]] = {}
        """By partition: up to which event, and where the transitions of the next begin."""

    def archive(self, wanted: Wanted) -> Manifest | None:
        """Read, put and verify one segment of at most `segment_bytes`; None if there is nothing.

        Raises `ArchiveError`, `RestoreError`, `KafkaException`, `SegmentCorrupt`.
        """
        reader = LogReader(self._settings)
        try:
            made = self._segment(reader, wanted)
        finally:
            reader.close()
        if made is None:
            return None
        if wanted.erased and ((seen := look(made, wanted.erased)).records or seen.states):
            made = blank(made, wanted.erased, seen.outcomes) or made
        manifest = self._archive.put(made)
        self._transitions[wanted.partition] = (manifest.last_offset + 1, manifest.transitions_to)
        return manifest

    def _segment(self, reader: LogReader, wanted: Wanted) -> bytes | None:
        topics, number = self._settings.topics, wanted.partition
        low, end = reader.bounds(topics.events, number)
        if not wanted.first:
            self._only_ours(number, end)
        if low > wanted.first > 0:
            raise ArchiveError(
                Trouble.MISSING,
                f"{topics.events}[{number}]",
                f"events {wanted.first} to {low - 1} left their topic before they were archived: "
                "a retention limit or a deletion overtook the archive",
            )
        writer = SegmentWriter(number, self._partitions)
        begin = max(low, wanted.first)
        found = reader.read(topics.events, number, begin, wanted.end)
        events = Blocks(writer, Kind.EVENTS, begin)
        room = self._settings.archive.segment_bytes
        for message in found:
            events.add(_kept(raw_event(message, self._lenient)))
            if events.bytes_seen >= room:
                break
        events.close()
        if not events.count:
            return None
        told = self._transitions_from(reader, number, wanted.first)
        passed = self._add_transitions(
            writer, reader, number, told, (wanted.first, events.last_offset)
        )
        return writer.finish(events.last_ms, passed)

    def _only_ours(self, partition: int, end: int) -> None:
        """Before the first word: whatever is here goes no further than the log does. Where a
        cluster was made anew, what is here may be all that is left of the one before.
        """
        for name in self._archive.held(partition).manifests:
            if (end_of(name) or 0) > end:
                raise ArchiveError(
                    Trouble.CONFIGURED,
                    name,
                    f"this is of another log: ours ends at {end}. Nothing is archived or swept; "
                    "set DALSEGNO_ARCHIVE_PREFIX to a prefix of this cluster's own, and bring runs "
                    "back with `dalsegno archive rebuild`",
                )

    def _transitions_from(self, reader: LogReader, partition: int, first: int) -> int:
        """Where the transitions of event `first` begin: the last segment says so."""
        known = self._transitions.get(partition)
        if known is None or known[0] != first:
            known = (first, max(self._ends_of_segments(partition, first), default=0))
        low, _ = reader.bounds(self._settings.topics.transitions, partition)
        return max(low, known[1])

    def _ends_of_segments(self, partition: int, first: int) -> Iterator[int]:
        """Where those before event `first` end with their transitions. One that cannot be read
        says nothing: then transitions are looked for from further back.
        """
        for name in self._archive.held(partition).manifests:
            offsets = offsets_of(name)
            if offsets is None or offsets[1] + 1 != first:
                continue
            try:
                yield self._archive.manifest(name).transitions_to
            except SegmentCorrupt as error:
                log.warning("a manifest is damaged", partition=partition, error=str(error))

    def _add_transitions(
        self,
        writer: SegmentWriter,
        reader: LogReader,
        partition: int,
        begin: int,
        events: tuple[int, int],
    ) -> int:
        """Transitions of the events between two offsets; returns where those of the next begin."""
        blocks = Blocks(writer, Kind.TRANSITIONS)
        passed = begin
        newest: Sequence | None = None
        for message in reader.read(self._settings.topics.transitions, partition, begin):
            sequence = sequence_in(message)
            if sequence is None:
                continue
            if sequence.offset > events[1]:
                break
            passed = (message.offset() or 0) + 1
            if sequence.offset < events[0]:
                continue
            if newest is None or sequence > newest:  # what is put out again is the same again
                newest = sequence
                blocks.add(_kept(raw_event(message, self._lenient)))
        blocks.close()
        return passed


class Blocks:
    """Gathers records into entries of some megabytes each. `begin`: the first offset that the first
    entry speaks of. Not every offset has a record: transactions end with one that nobody reads.
    """

    def __init__(self, writer: SegmentWriter, kind: Kind, begin: int | None = None) -> None:
        self._writer = writer
        self._kind = kind
        self._begin = begin
        self._records: list[Kept] = []
        self._bytes = 0
        self.bytes_seen = 0
        self.count = 0
        self.last_offset = -1
        self.last_ms = 0

    def add(self, record: Kept) -> None:
        """One record more."""
        self._records.append(record)
        size = len(record.key or b"") + len(record.value or b"") + _OVERHEAD_BYTES
        size += sum(len(name) + len(held) for name, held in record.headers)
        self._bytes += size
        self.bytes_seen += size
        self.count += 1
        self.last_offset = record.offset
        self.last_ms = max(self.last_ms, record.at_ms)
        if self._bytes >= BLOCK_BYTES:
            self.close()

    def close(self) -> None:
        """What is left becomes an entry."""
        records, self._records, self._bytes = self._records, [], 0
        if records:
            first = records[0].offset if self._begin is None else self._begin
            self._begin = None
            self._writer.add(
                self._kind, "", pack_records(records),
                first=first, last=records[-1].offset, count=len(records),
            )  # fmt: skip


def _kept(raw: RawEvent) -> Kept:
    headers = tuple((name.encode("utf-8", "surrogateescape"), held) for name, held in raw.headers)
    return Kept(raw.offset, raw.timestamp, raw.key, raw.value, headers)


def headers_of(kept: Kept) -> tuple[tuple[str, bytes], ...]:
    """The headers as readers of events take them: names that are no text have lone surrogates."""
    return tuple((name.decode("utf-8", "surrogateescape"), held) for name, held in kept.headers)


def records_of(archive: Archive, manifest: Manifest, kind: Kind) -> Iterator[Kept]:
    """The records of one kind in a segment, in order. Raises as reading a segment does."""
    for entry in archive.index(manifest).entries:
        if entry.kind is kind:
            payload = archive.read(manifest, entry)
            yield from unpack_records(payload, entry.count, entry.first_offset, entry.last_offset)
