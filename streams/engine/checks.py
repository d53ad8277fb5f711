"""Start-up checks: every fault by name, with the command that mends it. Pure, but for `look`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException

from dalsegno.schemas.control import Policy
from dalsegno.schemas.topics import Topics
from dalsegno.streams.core.sizes import DISPATCH_ROOM_BYTES, TOPIC_BYTES_MAX
from dalsegno.streams.engine.context import Layout
from dalsegno.streams.engine.errors import EngineError, OutcomeUnknownError
from dalsegno.streams.engine.fence import FencedProducer
from dalsegno.streams.engine.forgetting import Broker, forgets
from dalsegno.streams.engine.settings import EngineSettings
from dalsegno.streams.engine.topics_admin import (
    DEAD_LETTER_BYTES_MAX,
    REPLICATION,
    TopicFacts,
    TopicPlan,
    differences,
    plan,
    queue_names,
)

_FORBIDDEN = frozenset(
    {
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)
_INTERVALS = 4
"""A retention of the events must be so many times what an event may wait to be archived."""
_SIZE = "max.message.bytes"
CREATE = "run `dalsegno topics create`"


@dataclass(frozen=True, slots=True)
class Findings:
    """`faults` stop the start, `warnings` do not. One line each, with the command that mends it."""

    faults: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def check(
    topics: Topics,
    facts: Mapping[str, TopicFacts],
    *,
    dev: bool,
    archive_interval_ms: int = 0,
    erasure: bool = False,
) -> Findings:
    """Compare the topics with what they have to be. `archive_interval_ms`: 0 without an archive.
    `erasure`: every topic in which something of a run may be must forget it by a date.
    """
    events = facts.get(topics.events)
    if events is None:
        return Findings((f"topic {topics.events} is missing: {CREATE}",))
    names = queue_names(topics, facts)
    faults: list[str] = []
    warnings: list[str] = []
    thin: list[str] = []
    wanted = plan(
        topics,
        events.partitions,
        names or ["default"],
        dev=dev,
        archived=archive_interval_ms > 0,
        erasure=erasure,
    )
    for topic in wanted:
        have = facts.get(topic.name)
        if have is None:
            faults.append(f"topic {topic.name} is missing: {CREATE}")
            continue
        faults += _miscounted(topics, topic, have.partitions, events.partitions)
        faults += [
            _differs(have, topic.name, name, value)
            for name, value in differences(topic, have).items()
        ]
        if have.replication < REPLICATION:
            thin.append(topic.name)
    faults += _too_small_for(topics, facts)
    faults += _overtaken(topics, events, archive_interval_ms)
    if erasure:
        faults += _undated(topics, facts, archived=archive_interval_ms > 0)
    if thin:
        line = (
            f"replication below {REPLICATION}, so acknowledged records can be lost: "
            f"{', '.join(thin)}: use {REPLICATION} brokers and `kafka-reassign-partitions`"
        )
        (warnings if dev else faults).append(line)
    return Findings(tuple(faults), tuple(warnings))


def _miscounted(topics: Topics, topic: TopicPlan, count: int, events: int) -> Iterator[str]:
    """Its `count` of partitions is wrong, `events` being that of the events."""
    again = f"(`kafka-topics --delete --topic {topic.name}`, then {CREATE})"
    if topic.alike and count != events:
        yield (
            f"{topic.name} has {count} partitions, {topics.events} has {events}: "
            f"they must be equal; recreate the one that is wrong {again}"
        )
    if topic.name == topics.owners and count != 1:
        yield f"{topic.name} has {count} partitions: it must have 1; recreate it {again}"


def _too_small_for(topics: Topics, facts: Mapping[str, TopicFacts]) -> Iterator[str]:
    """A dead letter holds an event whole, and its headers, and the reason."""
    needed = _size_of(facts, topics.events) + DEAD_LETTER_BYTES_MAX - TOPIC_BYTES_MAX
    have = _size_of(facts, topics.dead_letters)
    if DEAD_LETTER_BYTES_MAX <= have < needed:  # below that it is a fault of its own
        yield (
            f"{topics.dead_letters} takes {have} bytes, which an event with its reason may exceed: "
            f"{_set(topics.dead_letters, f'{_SIZE}={needed}')}"
        )


def _size_of(facts: Mapping[str, TopicFacts], name: str) -> int:
    """What a topic takes as one record; Kafka's default where it does not say."""
    have = facts[name].config.get(_SIZE, "") if name in facts else ""
    return int(have) if have.isdigit() else TOPIC_BYTES_MAX


def _differs(have: TopicFacts, topic: str, name: str, value: str) -> str:
    return f"{topic}: {name} is {have.config.get(name, 'unset')}, not {value}: {CREATE}"


def size_fault(topics: Topics, facts: Mapping[str, TopicFacts], name: str = "") -> str:
    """Why a topic (without a name: any) takes less than what is written to it, with the command
    that mends it; or an empty text.
    """
    for topic in plan(topics, 1, queue_names(topics, facts), dev=True):
        have = facts.get(topic.name) if name in ("", topic.name) else None
        value = differences(topic, have).get(_SIZE) if have is not None else None
        if have is not None and value is not None:
            return _differs(have, topic.name, _SIZE, value)
    letters = name in ("", topics.dead_letters)
    return next(_too_small_for(topics, facts), "") if letters else ""


def _overtaken(topics: Topics, events: TopicFacts, interval_ms: int) -> list[str]:
    """A retention that may catch up with the archive loses events."""
    text = events.config.get("retention.ms", "-1")
    if not interval_ms or not text.isdigit() or int(text) >= _INTERVALS * interval_ms:
        return []
    line = (
        f"{topics.events}: retention.ms is {text}, and an event may wait {interval_ms} ms to be "
        f"archived: days are better than the least that is needed "
        f"({_set(topics.events, f'retention.ms={_INTERVALS * interval_ms}')})"
    )
    return [line]


def _undated(topics: Topics, facts: Mapping[str, TopicFacts], *, archived: bool) -> list[str]:
    found: list[str] = []
    for each in forgets(topics, facts, 0, Broker()):
        if each.by_ms is not None:
            continue
        setting = each.remedy.partition(" ")[0]
        first = ""
        if each.topic == topics.events and not archived:
            first = "set up an archive (DALSEGNO_ARCHIVE_BUCKET), then "
        found.append(
            f"{each.topic} never forgets, so an erasure has no date: {first}set a limit "
            f"({_set(each.topic, f'{setting}=…')})"
        )
    return found


def _set(topic: str, setting: str) -> str:
    """The command that sets something of a topic which `topics create` leaves to its owner."""
    where = f"--entity-type topics --entity-name {topic}"
    return f"`kafka-configs --alter {where} --add-config {setting}`"


def dispatch_fault(
    topics: Topics, facts: Mapping[str, TopicFacts], policy: Policy, *, in_force: bool = False
) -> str:
    """Why handoffs or answers of the policy's size would not get into their topics; or empty.

    `in_force`: what it lets be is on its way already, so that to lower it does not help any more.
    """
    needed = policy.dispatch_bytes_max + DISPATCH_ROOM_BYTES
    for name in (*map(topics.queue, policy.queues), topics.control):
        have = _size_of(facts, name)
        if name in facts and have < needed:
            said = f"dispatch_bytes_max is {policy.dispatch_bytes_max}"
            remedy = _set(name, f"{_SIZE}={needed}")
            does = remedy if in_force else f"lower it, or {remedy} first"
            return f"{said}, and {name} takes {have} bytes: {does}"
    return ""


def layout_of(topics: Topics, facts: Mapping[str, TopicFacts]) -> Layout:
    """What the partitions need to know of the topics, once they are right."""
    overhead = 1_024  # batch and record framing, so that no record is refused by the broker
    return Layout(
        partitions=facts[topics.events].partitions,
        counts={name: topic.partitions for name, topic in facts.items()},
        # Lowered while we run, a topic is waited for: nothing is left out because of that.
        size_max={
            name: max(_size_of(facts, name), TOPIC_BYTES_MAX) - overhead
            for name in (
                topics.transitions,
                topics.escalations,
                topics.dead_letters,
                topics.faults,
            )
        },
        queues=tuple(queue_names(topics, facts)),
    )


async def transactions_allowed(settings: EngineSettings) -> str | None:
    """Start and drop a transactional producer: the fault if that is not permitted, else None."""
    producer = FencedProducer(settings, f"{settings.prefix}-check")
    try:
        await producer.start()
    except OutcomeUnknownError as error:
        cause = error.__cause__
        if isinstance(cause, KafkaException) and cause.args[0].code() in _FORBIDDEN:
            return (
                f"transactions are not permitted for ids `{settings.prefix}-…`: `kafka-acls --add "
                f"--operation Write --operation Describe --transactional-id {settings.prefix}- "
                "--resource-pattern-type prefixed --allow-principal User:…`"
            )
        raise
    except EngineError:
        return None  # another engine checks at the same time and fenced us: so they are permitted
    finally:
        await producer.close()
    return None
