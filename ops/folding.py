"""Fold a partition's log as an engine does, record by record, without an engine."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from dalsegno.ops.kafka.reader import Reader
from dalsegno.ops.kafka.writer import NoKeyError
from dalsegno.schemas.intake import Intake
from dalsegno.streams.core.actions import Output
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.record import Record
from dalsegno.streams.engine.errors import PositionLostError
from dalsegno.streams.engine.raw import RawEvent
from dalsegno.streams.engine.reader import EventReader
from dalsegno.streams.engine.settings import EngineSettings
from dalsegno.streams.engine.signatures import verify_ed25519


class Folded(NamedTuple):
    """One record, what it led to, and the partition after it."""

    record: Record
    outputs: list[Output]
    partition: Partition


def fold_log(
    settings: EngineSettings,
    reader: Reader,
    number: int,
    count: int,
    progress: Callable[[int], None] = lambda _: None,
) -> Iterator[Folded]:
    """Fold partition `number` of `count` from its first record to its present end.

    Raises PositionLostError when the log no longer begins at 0, ReadError, NoKeyError.
    """
    topic = settings.topics.events
    first, _ = reader.bounds(topic, number)
    if first:
        raise PositionLostError(
            number,
            "log_cut",
            f"the log begins at {first}, so nothing can be folded from its first record; what came "
            "before is in the archive, if there is one: `dalsegno audit RUN` reads both",
        )
    raw = (
        RawEvent(each.offset, each.at_ms, each.key, each.value, each.headers)
        for each in reader.read(topic, number, progress=progress)
    )
    yield from fold_records(settings, raw, number, count)


def fold_records(
    settings: EngineSettings,
    raw: Iterable[RawEvent | Record],
    number: int,
    count: int,
    *,
    versions: bool = False,
) -> Iterator[Folded]:
    """Fold records of partition `number` of `count`, from its first on, wherever they come from.

    With `versions` the partition notes those of its runs: whoever asks for it drains them.
    What an archive has blanked comes as a record that is read already. Raises NoKeyError.
    """
    for record, partition in records_met(settings, raw, number, count, versions=versions):
        yield Folded(record, partition.apply(record), partition)


def records_met(
    settings: EngineSettings,
    raw: Iterable[RawEvent | Record],
    number: int,
    count: int,
    *,
    versions: bool = False,
) -> Iterator[tuple[Record, Partition]]:
    """The same, each record with the partition that it meets: whoever is given one applies it
    before the next.
    """
    if not settings.mac_keys:
        raise NoKeyError  # verdicts, policies and decisions would count as forged: another history
    topic = settings.topics.events
    partition = Partition(number, mac_keys=settings.keyring.ids, topic=topic)
    if versions:
        partition.versions.keep()
    events = EventReader(Intake(topic, count, settings.keyring, verify_ed25519), number)
    for each in raw:
        for record in [each] if isinstance(each, Record) else events.read(partition, (each,)):
            yield record, partition
