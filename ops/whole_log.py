"""All events of a partition, from its first on: from the archive, and from Kafka behind it."""

from collections.abc import Callable, Iterator, Sequence

from dalsegno.ops.kafka.reader import Reader
from dalsegno.storage.archive.archive import Archive, Manifest
from dalsegno.storage.archive.segment import Kind
from dalsegno.streams.core.record import Record
from dalsegno.streams.engine.archiving import records_of
from dalsegno.streams.engine.blanking import record_of
from dalsegno.streams.engine.raw import RawEvent
from dalsegno.streams.engine.settings import EngineSettings


class ArchiveGap(Exception):  # noqa: N818 - what it is
    """The archive lacks events of a partition, so no history can be folded from it."""


class NoArchive(ArchiveGap):
    """The log has lost its first events, and the settings name no archive that may have them."""


def end_of(chain: Sequence[Manifest]) -> int:
    """The first offset that a chain of segments does not hold."""
    return chain[-1].last_offset + 1 if chain else 0


def whole_log(
    settings: EngineSettings,
    number: int,
    *,
    archive: Archive | None,
    chain: Sequence[Manifest],
    reader: Reader | None,
    progress: Callable[[int], None] = lambda _: None,
) -> Iterator[RawEvent | Record]:
    """Events of partition `number`: those of the chain, then those that only Kafka has. What was
    erased comes as a record that is read already.

    Raises `ArchiveGap` where neither has an event (`NoArchive` without one set), `ArchiveError`,
    `SegmentCorrupt`, `RecordsCorrupt`, `ReadError`.
    """
    position = 0
    for manifest in chain:
        assert archive is not None, "a chain is of an archive"
        for each in records_of(archive, manifest, Kind.EVENTS):
            if each.offset >= position:
                position = each.offset + 1
                yield record_of(each)
        progress(manifest.last_offset + 1 - manifest.first_offset)
    if reader is None:
        return
    topic = settings.topics.events
    end = end_of(chain)
    low, _ = reader.bounds(topic, number)
    if low > end and not settings.archive.enabled:
        raise NoArchive(
            f"partition {number}: Kafka has no events before {low}, and no archive is set: set "
            "DALSEGNO_ARCHIVE_BUCKET as the engines have it"
        )
    if low > end:
        raise ArchiveGap(f"partition {number}: events {end} to {low - 1} are nowhere")
    for record in reader.read(topic, number, end, progress=progress):
        yield RawEvent(record.offset, record.at_ms, record.key, record.value, record.headers)
