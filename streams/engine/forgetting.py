"""By when Kafka's logs have forgotten what they hold of a run: a date that topic settings give.

A log forgets whole files. A topic that deletes: the record's file is closed at the latest
`segment.ms` after its first record, and deleted `retention.ms` after its last one. A topic that
compacts: the file is closed and cleaned within `max.compaction.lag.ms`; the mark of a deletion
stays for `delete.retention.ms` and goes with the next cleaning, again within
`max.compaction.lag.ms`. The broker looks at intervals of its own, and deletes files a moment later:
`Broker`.

Sources: Kafka 4.1 documentation, "Topic configs" and "Broker configs".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from dalsegno.schemas.topics import Topics
from dalsegno.streams.engine.topics_admin import TopicFacts, queue_names

FOREVER_MS: Final = 1 << 62
"""Settings from here on mean that there is no limit."""


class Broker(NamedTuple):
    """How often brokers look: for files to delete, for logs to compact. Kafka's defaults."""

    retention_check_ms: int = 300_000
    cleaner_backoff_ms: int = 15_000


class Forgets(NamedTuple):
    """When a topic has forgotten. `by_ms` None: never; then `remedy` says what to set."""

    topic: str
    by_ms: int | None
    remedy: str = ""


def topics_of_runs(topics: Topics, facts: Mapping[str, TopicFacts]) -> list[str]:
    """Topics in which something of a run may be. Those of fault points know of no run."""
    queues = [topics.queue(name) for name in queue_names(topics, facts)]
    return [
        topics.events, topics.heartbeats, *queues, topics.control, topics.transitions,
        topics.escalations, topics.dead_letters, topics.runs_changelog,
    ]  # fmt: skip


def forgets(
    topics: Topics, facts: Mapping[str, TopicFacts], last_ms: int, broker: Broker
) -> list[Forgets]:
    """For each topic, when what was appended up to `last_ms` (Unix ms) has left it."""
    return [
        _forgets(name, facts[name].config, last_ms, broker)
        for name in topics_of_runs(topics, facts)
        if name in facts
    ]


def gone_by_ms(found: list[Forgets]) -> int | None:
    """The last of the dates; None when there is a topic that never forgets."""
    dates = [each.by_ms for each in found]
    return None if None in dates else max(each for each in dates if each is not None)


def rolled_within_ms(config: Mapping[str, str]) -> int:
    """After so long, the next record of a compacted topic closes the file before it."""
    return min(_number(config, "segment.ms"), _number(config, "max.compaction.lag.ms"))


def retention_ms(config: Mapping[str, str]) -> int:
    """How long a topic that deletes keeps a record at least."""
    return _number(config, "retention.ms")


def _forgets(name: str, config: Mapping[str, str], last_ms: int, broker: Broker) -> Forgets:
    delay = _number(config, "file.delete.delay.ms", 60_000)
    if config.get("cleanup.policy") == "compact":
        lag = _number(config, "max.compaction.lag.ms")
        if lag >= FOREVER_MS:
            return Forgets(name, None, "max.compaction.lag.ms has no limit: set one")
        kept = _number(config, "delete.retention.ms")
        looks = broker.cleaner_backoff_ms + delay
        return Forgets(name, last_ms + 2 * (lag + looks) + kept)
    retention, segment = _number(config, "retention.ms"), _number(config, "segment.ms")
    if retention >= FOREVER_MS:
        return Forgets(name, None, "retention.ms has no limit: set one")
    return Forgets(name, last_ms + segment + retention + broker.retention_check_ms + delay)


def _number(config: Mapping[str, str], name: str, missing: int = FOREVER_MS) -> int:
    """A setting in milliseconds; -1 and what is not there mean: no limit."""
    text = config.get(name, "")
    try:
        value = int(text)
    except ValueError:
        return missing
    return FOREVER_MS if value < 0 else value
