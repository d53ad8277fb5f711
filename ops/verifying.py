"""Is what the engines saved the fold of the log? Of each partition: by which records, if at all.

Where the events topic has forgotten its first records they come from the archive.
"""

from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Final

import msgspec
from msgspec import structs

from dalsegno.ops.archived import chain_of, open_archive
from dalsegno.ops.folding import fold_records
from dalsegno.ops.kafka.reader import Reader
from dalsegno.ops.kafka.writer import NoKeyError
from dalsegno.ops.whole_log import ArchiveGap, end_of, whole_log
from dalsegno.storage.archive.archive import Archive
from dalsegno.storage.archive.objects import ArchiveError
from dalsegno.storage.archive.records import RecordsCorrupt
from dalsegno.storage.archive.segment import SegmentCorrupt
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.partition_parts import ESTIMATE_KEY, PARTITION_KEY
from dalsegno.streams.core.record import Blank
from dalsegno.streams.core.rows import StepRow
from dalsegno.streams.core.state_codec import (
    KIND_RUN,
    PREFIX_BYTES,
    read_head,
    read_prefix,
    run_of,
)
from dalsegno.streams.engine.settings import EngineSettings
from dalsegno.streams.engine.verify import PartitionReport, Verifier, differences

LEFT_OUT: Final = (
    "erased records say no more what the partition put out and learned: its own part is compared"
    " by its counts alone; durations, predictions by them and numbers of handoffs are not"
)
"""What is not compared where records in the archive were erased."""
_page: Final = msgspec.msgpack.Decoder(list[StepRow | None])
_encode: Final = msgspec.msgpack.Encoder().encode


def verify_events(
    settings: EngineSettings, reader: Reader, count: int, only: Iterable[int]
) -> Iterator[PartitionReport]:
    """One report for each of these partitions of `count`. The archive is only asked where the log
    lacks its first events. Raises `NoKeyError`: without it every control event counts as forged.
    """
    if not settings.mac_keys:
        raise NoKeyError
    verifier = Verifier(settings, Partition, count)
    try:
        for number in only:
            low, _ = reader.bounds(settings.topics.events, number)
            if low == 0:
                yield verifier.verify(number)
                continue
            saved = verifier.changelog(number)
            if not saved:
                yield PartitionReport(number, 0, 0, 0, ())
                continue
            if not settings.archive.enabled:
                why = "what came before is in the archive, if anywhere: the settings name none"
                yield not_compared(number, saved, low, why)
                continue
            try:
                with open_archive(settings) as archive:
                    yield verify_archived(
                        settings, saved, number, count, archive=archive, reader=reader
                    )
            except (ArchiveGap, ArchiveError, SegmentCorrupt, RecordsCorrupt) as error:
                yield not_compared(number, saved, low, str(error))
    finally:
        verifier.close()


def not_compared(number: int, saved: dict[bytes, bytes], low: int, why: str) -> PartitionReport:
    """What is said where nothing can be folded. `low`: where the log begins."""
    position = Partition.restore(number, saved.items()).position
    return PartitionReport(
        number, position, 0, len(saved), (), begins_at=low, compared="", detail=why
    )


def verify_archived(
    settings: EngineSettings,
    saved: dict[bytes, bytes],
    number: int,
    count: int,
    *,
    archive: Archive,
    reader: Reader | None,
) -> PartitionReport:
    """Fold the archive, and the log behind it, up to the last checkpoint, and compare with that.

    Raises `ArchiveGap`, `ArchiveError`, `SegmentCorrupt`, `RecordsCorrupt`, `ReadError`.
    """
    chain = chain_of(archive, number)
    checkpoint = Partition.restore(number, saved.items(), topic=settings.topics.events)
    end, events, blanks = checkpoint.position, 0, 0
    fold = Partition(number, mac_keys=settings.keyring.ids, topic=settings.topics.events)
    found = whole_log(settings, number, archive=archive, chain=chain, reader=reader)
    before = takewhile(lambda each: each.offset < end, found)
    for folded in fold_records(settings, before, number, count):
        fold = folded.partition
        events += 1
        blanks += isinstance(folded.record.event, Blank)
    if fold.position < end:
        raise ArchiveGap(f"partition {number}: events {fold.position} to {end - 1} are nowhere")
    parts = fold.parts()
    have, want = (_without_erased(each) if blanks else each for each in (parts, saved))
    unlike = list(differences(have, want))
    if fold.counts != checkpoint.counts:
        unlike.append(f"counts: changelog {checkpoint.counts}, fold {fold.counts}")
    return PartitionReport(
        number,
        end,
        events,
        len(parts),
        tuple(unlike),
        {str(outcome): each for outcome, each in fold.counts.items()},
        fold.waiting,
        compared="archive",
        archived_to=min(end, end_of(chain)),
        erased=blanks,
        detail=LEFT_OUT if blanks else "",
    )


def _without_erased(parts: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """The parts without what erased runs had a hand in; see `LEFT_OUT`."""
    return {
        key: _part(key, part)
        for key, part in parts.items()
        if key != PARTITION_KEY and not key.startswith(ESTIMATE_KEY)
    }


def _part(key: bytes, part: bytes) -> bytes:
    if key[:1] == b"s":
        return _encode([row if row is None else _row(row) for row in _page.decode(part)])
    if key[:1] != b"r" or read_prefix(part).kind != KIND_RUN:
        return part
    head = read_head(run_of(key)[0], part)
    if head.damage is not None:
        head.damage = structs.replace(
            head.damage, work_ms=0, expected_ms=0, plan=b"", predicted_ms=0
        )
    return part[:PREFIX_BYTES] + _encode(head)


def _row(row: StepRow) -> StepRow:
    if row.flight is None:
        return row
    return structs.replace(row, flight=structs.replace(row.flight, count=0))
