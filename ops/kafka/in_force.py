"""What the log says is in force on each partition: the policy, and the rules."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from dalsegno.ops.kafka.reader import LogRecord, Reader
from dalsegno.ops.kafka.writer import NoKeyError
from dalsegno.schemas import codec
from dalsegno.schemas.control import PartitionControl, Policy, PolicySet, RulesChanged
from dalsegno.schemas.intake import Intake
from dalsegno.streams.engine.settings import EngineSettings

RULES_FIRST = 1
"""Rules of a partition before its first marker."""

E = TypeVar("E", bound=PartitionControl)


@dataclass(frozen=True, slots=True)
class InForce(Generic[E]):
    """The event of one kind that stands on a partition; `event` None: none was ever appended."""

    partition: int
    event: E | None
    offset: int = -1
    at_ms: int = 0

    @property
    def next_number(self) -> int:
        """A number that a new event of the kind needs so as not to be a duplicate."""
        return self.event.number + 1 if self.event is not None else 1


def policy_of(found: InForce[PolicySet]) -> Policy:
    """The policy, or the one that is built in."""
    return found.event.policy if found.event is not None else Policy()


def rules_of(found: InForce[RulesChanged]) -> int:
    """The rules version, or the first."""
    return found.event.rules_version if found.event is not None else RULES_FIRST


def find_in_force(
    settings: EngineSettings,
    kind: type[E],
    begin: Callable[[int], None] = lambda _: None,
    progress: Callable[[int], None] = lambda _: None,
) -> list[InForce[E]]:
    """For each partition, the standing event of `kind`. Reads the whole events topic.

    `begin` gets the number of records ahead, `progress` those passed. An event counts only if its
    MAC verifies, as for the fold. Raises ReadError, and NoKeyError without a key to verify with.
    """
    if not settings.mac_keys:
        raise NoKeyError
    topic = settings.topics.events
    with Reader(settings) as reader:
        count = reader.partitions(topic)
        bounds = [reader.bounds(topic, partition) for partition in range(count)]
        begin(sum(end - start for start, end in bounds))
        intake = Intake(topic, count, settings.keyring)
        return [
            _newest(reader.read(topic, partition, progress=progress), partition, intake, kind)
            for partition in range(count)
        ]


def _newest(
    records: Iterable[LogRecord], partition: int, intake: Intake, kind: type[E]
) -> InForce[E]:
    standing: InForce[E] = InForce(partition, None)
    for record in records:
        if codec.kind_of(record.value or b"") != kind.__name__:
            continue
        event = intake.read(partition, record.key, record.value, record.headers)
        if isinstance(event, kind) and event.number >= standing.next_number:
            standing = InForce(partition, event, record.offset, record.at_ms)
    return standing
