"""The archive from outside: what is in it, and the history of a run from it alone."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

import msgspec

from dalsegno.ops.folding import fold_records
from dalsegno.ops.kafka.reader import Reader
from dalsegno.ops.whole_log import ArchiveGap, end_of, whole_log
from dalsegno.schemas import codec
from dalsegno.schemas.outputs import Transition
from dalsegno.schemas.partitioner import partition_for
from dalsegno.storage.archive.archive import Archive, Manifest, offsets_of
from dalsegno.storage.archive.records import Kept
from dalsegno.storage.archive.s3 import S3Objects
from dalsegno.storage.archive.segment import Kind, SegmentCorrupt
from dalsegno.streams.core.actions import Audit
from dalsegno.streams.core.record import Blank, Record
from dalsegno.streams.core.sequence import Sequence
from dalsegno.streams.core.tombstones import Tombstone
from dalsegno.streams.engine.archiving import headers_of, records_of
from dalsegno.streams.engine.raw import RawEvent
from dalsegno.streams.engine.restore import sequence_of
from dalsegno.streams.engine.settings import EngineSettings

__all__ = ["ArchiveGap", "Audited", "audit", "chain_of", "open_archive", "partitions_of"]


@contextmanager
def open_archive(settings: EngineSettings, prefix: str | None = None) -> Iterator[Archive]:
    """The archive of the settings, or the one under another prefix. Raises `ArchiveError`."""
    objects = S3Objects(settings.archive.s3())
    try:
        objects.check()
        yield Archive(objects, settings.archive_prefix if prefix is None else prefix)
    finally:
        objects.close()


def chain_of(archive: Archive, partition: int) -> list[Manifest]:
    """The segments of a partition that follow each other from its first event on.

    Two owners may have archived the same events; either segment will do. A damaged manifest counts
    as none, as long as others lead on without it. Raises `ArchiveGap`.
    """
    read: list[Manifest] = []
    damaged: list[SegmentCorrupt] = []
    found: list[Manifest] = []
    end = last = 0
    for name in archive.names(partition):
        try:
            read.append(archive.manifest(name))
        except SegmentCorrupt as error:
            damaged.append(error)
            last = max(last, (offsets_of(name) or (0, 0))[1])
    replaced = {name for manifest in read for name in manifest.replaces}
    for manifest in read:
        if manifest.segment in replaced or not manifest.records:
            continue  # another came in its place; states of runs are no events
        if manifest.first_offset <= end <= manifest.last_offset:
            found.append(manifest)
            end = manifest.last_offset + 1
        elif manifest.first_offset > end:
            raise ArchiveGap(
                f"partition {partition}: no segment holds events {end} to "
                f"{manifest.first_offset - 1} {damaged or ''}"
            )
    if last >= end and damaged:
        raise ArchiveGap(f"partition {partition}: events {end} to {last}: {damaged[-1]}")
    return found


def transitions_of(archive: Archive, chain: Iterable[Manifest]) -> Iterator[Kept]:
    """The archived transitions of a chain, each once: two segments may hold the same. Raises
    `ArchiveError`, `SegmentCorrupt`, `RecordsCorrupt`.
    """
    newest: Sequence | None = None
    for manifest in chain:
        for each in records_of(archive, manifest, Kind.TRANSITIONS):
            found = sequence_of(list(headers_of(each)))
            if found is not None and (newest is None or found > newest):
                newest = found
                yield each


class Audited(NamedTuple):
    """A run's history. `archived`: how many of the transitions were compared with archived ones.

    `differences`: where the fold says other than what was archived. `log_from`: the first event
    that came from Kafka, not from the archive; None if none did. `erased`: the run's tombstone, if
    it was erased; then nothing is compared.
    """

    transitions: list[Transition]
    archived: int
    differences: list[str]
    log_from: int | None
    erased: Tombstone | None = None


def audit(
    settings: EngineSettings,
    archive: Archive,
    run_id: str,
    reader: Reader | None,
    progress: Callable[[int], None] = lambda _: None,
) -> Audited:
    """Fold the run's partition from the archive, and from Kafka behind it where there is a
    `reader`; compare with the archived transitions.

    Raises `ArchiveGap`, `ArchiveError`, `SegmentCorrupt`, `RecordsCorrupt`, `ReadError`.
    """
    count = partitions_of(archive, reader, settings)
    number = partition_for(run_id, count)
    chain = chain_of(archive, number)
    key = run_id.encode()
    kept = [each.value or b"" for each in transitions_of(archive, chain) if each.key == key]
    end = end_of(chain)
    log_from: int | None = None

    def raw() -> Iterator[RawEvent | Record]:
        nonlocal log_from
        for each in whole_log(
            settings, number, archive=archive, chain=chain, reader=reader, progress=progress
        ):
            if each.offset >= end and log_from is None:
                log_from = each.offset
            yield each

    transitions: list[Transition] = []
    differences: list[str] = []
    erased: Tombstone | None = None
    blanks = 0
    for folded in fold_records(settings, raw(), number, count):
        erased = folded.partition.erased(run_id)
        blanks += isinstance(folded.record.event, Blank)
        for output in folded.outputs:
            action = output.action
            if not isinstance(action, Audit) or action.transition.run_id != run_id:
                continue
            place = len(transitions)
            transitions.append(action.transition)
            if place < len(kept) and not _same(action.transition, kept[place], blank=blanks > 0):
                differences.append(f"transition {place + 1} of event {output.sequence.offset}")
    if erased is not None:
        return Audited([], 0, [], log_from, erased)
    if len(kept) > len(transitions):
        differences.append(f"{len(kept)} transitions are archived, the fold has {len(transitions)}")
    return Audited(transitions, min(len(kept), len(transitions)), differences, log_from)


def _same(transition: Transition, kept: bytes, *, blank: bool) -> bool:
    """Whether the fold says what was archived. What an erased run has taught about durations is
    gone: behind its blank records, predictions in the detail may be others.
    """
    if codec.encode(transition) == kept:
        return True
    was = codec.decode(kept) if blank else None
    return isinstance(was, Transition) and msgspec.structs.replace(
        was, detail=""
    ) == msgspec.structs.replace(transition, detail="")


def partitions_of(archive: Archive | None, reader: Reader | None, settings: EngineSettings) -> int:
    """How many partitions there are. Raises `ArchiveGap` where nothing says so."""
    if reader is not None:
        return reader.partitions(settings.topics.events)
    for count in counts_of(archive) if archive is not None else ():
        return count
    raise ArchiveGap("there is nothing in the archive")


def counts_of(archive: Archive) -> Iterator[int]:
    """How many partitions there were, by each segment of events; a damaged manifest says nothing.
    Raises `ArchiveError`.
    """
    for name in archive.names():
        with suppress(SegmentCorrupt):
            yield archive.manifest(name).partitions
