"""What the log says is in force on each partition: the policy, and the rules."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from dalsegno.ops.kafka.reader import LogRecord, Reader, ReadError
from dalsegno.ops.kafka.writer import NoKeyError
from dalsegno.schemas import codec
from dalsegno.schemas.control import PartitionControl, Policy, PolicySet, RulesChanged
from dalsegno.schemas.intake import Intake
from dalsegno.streams.core.controls import policy_fault
from dalsegno.streams.core.partition_parts import PARTITION_KEY, read_own_part
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
    """For each partition, the standing event of `kind`. Reads the whole events topic; where that
    has lost its first records, the state that engines have saved says what was in force before.

    `begin` gets the number of records ahead, `progress` those passed. An event counts only if the
    fold takes it, which its MAC must let it. Raises ReadError, and NoKeyError without a key to
    verify with.
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
            _newest(
                reader.read(topic, partition, progress=progress),
                _before(reader, settings, partition, kind) if start else InForce(partition, None),
                intake,
                kind,
            )
            for partition, (start, _) in enumerate(bounds)
        ]


def _before(reader: Reader, settings: EngineSettings, partition: int, kind: type[E]) -> InForce[E]:
    """What was in force at the last checkpoint: its event may be among those that the log lost."""
    changelog, own = settings.topics.runs_changelog, None
    for record in reader.read(changelog, partition):
        if record.key == PARTITION_KEY:
            own = record.value
    if own is None:
        raise ReadError(
            f"{settings.topics.events}[{partition}] has lost its first records, and no engine has "
            f"saved a state in {changelog}: start `dalsegno engine`"
        )
    state = read_own_part(partition, own)
    number = dict(state.numbers).get(kind.__name__)
    if number is None:
        return InForce(partition, None)
    stands: PartitionControl = PolicySet(partition=partition, number=number, policy=state.policy)
    if kind is RulesChanged:
        stands = RulesChanged(partition=partition, number=number, rules_version=state.rules)
    assert isinstance(stands, kind), "no other kind is saved as it stands"
    return InForce(partition, stands)


def _newest(
    records: Iterable[LogRecord], standing: InForce[E], intake: Intake, kind: type[E]
) -> InForce[E]:
    partition = standing.partition
    for record in records:
        if codec.kind_of(record.value or b"") != kind.__name__:
            continue
        event = intake.read(partition, record.key, record.value, record.headers)
        if isinstance(event, PolicySet) and policy_fault(event.policy):
            continue  # refused by the fold: the one before stands
        if isinstance(event, kind) and event.number >= standing.next_number:
            standing = InForce(partition, event, record.offset, record.at_ms)
    return standing
