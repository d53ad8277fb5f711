"""States of archived runs made anew, where the archive has lost them: out of the events.

A run left by an event of its own log, so the fold of the log up to that event has the run as it
left. It is the whole partition's fold: rules, policy, plans and what other runs did are part of it.
Nothing is guessed: the parts have the digest that the run left by, or they are none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack

from dalsegno.ops.archived import chain_of, open_archive
from dalsegno.ops.folding import records_met
from dalsegno.ops.kafka.reader import Reader
from dalsegno.ops.whole_log import whole_log
from dalsegno.schemas.control import ArchiveConfirmed
from dalsegno.schemas.partitioner import partition_for
from dalsegno.storage.archive.archive import Archive
from dalsegno.streams.core.controls import RulesUnknown
from dalsegno.streams.core.record import Record
from dalsegno.streams.engine.errors import PartitionStoppedError
from dalsegno.streams.engine.raw import RawEvent
from dalsegno.streams.engine.settings import EngineSettings


class NotRefoldedError(Exception):
    """The events do not give the state that the run left with. A retry gives the same."""


def parts_from_events(
    settings: EngineSettings,
    run_id: str,
    digest: bytes,
    progress: Callable[[int], None] = lambda _: None,
) -> bytes:
    """The parts of one run. The archive is only asked where the log lacks its first events.

    Raises `NotRefoldedError`, `ArchiveGap` (`NoArchive`), `ArchiveError`, `SegmentCorrupt`,
    `RecordsCorrupt`, `ReadError`, `NoKeyError`.
    """
    topic = settings.topics.events
    with ExitStack() as stack:
        reader = stack.enter_context(Reader(settings))
        count = reader.partitions(topic)
        number = partition_for(run_id, count)
        archive: Archive | None = None
        if reader.bounds(topic, number)[0] and settings.archive.enabled:
            archive = stack.enter_context(open_archive(settings))
        chain = () if archive is None else chain_of(archive, number)
        raw = whole_log(
            settings, number, archive=archive, chain=chain, reader=reader, progress=progress
        )
        try:
            found = refold(settings, raw, number, count, {run_id: digest})
        except (RulesUnknown, PartitionStoppedError) as error:
            raise NotRefoldedError(f"run {run_id}: its events cannot be folded: {error}") from error
    if run_id not in found:
        raise NotRefoldedError(
            f"run {run_id}: the fold of partition {number} never has the state that it left with"
            " (another digest). For example, records were erased from the archive, or the settings"
            " lack a MAC key that some were signed with"
        )
    return found[run_id]


def refold(
    settings: EngineSettings,
    raw: Iterable[RawEvent | Record],
    number: int,
    count: int,
    wanted: Mapping[str, bytes],
) -> dict[str, bytes]:
    """The parts of runs of one partition, by the digests that they left with; without those that
    the fold has in no such state.

    Raises `RulesUnknown`, `PartitionStoppedError`, `NoKeyError`, and what reading `raw` raises.
    """
    found: dict[str, bytes] = {}
    for record, partition in records_met(settings, raw, number, count):
        if isinstance(record.event, ArchiveConfirmed):
            for run_id in record.event.run_ids:
                parts = partition.archived.parts_of(run_id, wanted.get(run_id, b""))
                if parts is not None:
                    found[run_id] = parts
            if found.keys() == wanted.keys():
                break
        partition.apply(record)
    return found
