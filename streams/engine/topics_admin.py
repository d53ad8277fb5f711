"""The topics as they have to be: a plan of them, and the admin calls that make them so."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from dalsegno.schemas.topics import Topics
from dalsegno.streams.client.refused import Complaints, connect
from dalsegno.streams.core.sizes import TOPIC_BYTES_MAX
from dalsegno.streams.engine.errors import StartRefusedError
from dalsegno.streams.engine.security import librdkafka_options
from dalsegno.streams.engine.settings import EngineSettings

_TIMEOUT_S: Final = 30.0
_PING_S: Final = 3.0
_POLL_S: Final = 0.1
_DAY_MS: Final = 86_400_000
DEAD_LETTER_BYTES_MAX: Final = TOPIC_BYTES_MAX + 65_536
"""A dead letter holds the original record, its headers and the reason."""
CHANGELOG_BYTES_MAX: Final = 16_777_216
CLEANED_MS: Final = 7 * _DAY_MS
"""With erasure, the changelog is compacted at the latest so long after a deletion."""
PARTITIONS_DEFAULT: Final = 8
REPLICATION: Final = 3

Config = dict[str, str]


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """One topic as it has to be. `alike`: it must have as many partitions as the events. `free`:
    settings that it is made with and that may be changed.
    """

    name: str
    partitions: int
    config: Config
    alike: bool = True
    free: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """One topic as it is."""

    partitions: int
    replication: int
    config: Mapping[str, str] = field(default_factory=dict)


def plan(
    topics: Topics,
    partitions: int,
    queues: Iterable[str],
    *,
    dev: bool,
    archived: bool = False,
    erasure: bool = False,
) -> list[TopicPlan]:
    """Every topic of a prefix. `dev`: one broker, so no minimum of in-sync replicas. `archived`:
    the events may have a retention. `erasure`: what was deleted leaves the changelog by a date.
    """
    safe = {} if dev else {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}
    append_time = {"message.timestamp.type": "LogAppendTime"}
    forever = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
    compact = {"cleanup.policy": "compact", "segment.ms": str(_DAY_MS)}

    def kept(days: float, segment_ms: int = _DAY_MS) -> Config:
        retention = {"retention.ms": str(int(days * _DAY_MS)), "segment.ms": str(segment_ms)}
        return {"cleanup.policy": "delete", **retention, **safe}

    size = {"max.message.bytes": str(TOPIC_BYTES_MAX)}
    events = {**append_time, **forever, "segment.ms": str(_DAY_MS), **size, **safe}
    letters = {**kept(30), "max.message.bytes": str(DEAD_LETTER_BYTES_MAX)}
    cleaned = {"max.compaction.lag.ms": str(CLEANED_MS), "delete.retention.ms": str(_DAY_MS)}
    changelog = {
        **compact,
        **(cleaned if erasure else {}),
        "max.message.bytes": str(CHANGELOG_BYTES_MAX),
        **safe,
    }
    wanted = [
        TopicPlan(
            topics.events,
            partitions,
            events,
            free=frozenset({"retention.ms"}) if archived else frozenset(),
        ),
        TopicPlan(topics.heartbeats, partitions, {**append_time, **kept(1 / 144, 300_000), **size}),
        *(TopicPlan(topics.queue(name), partitions, {**kept(7), **size}) for name in queues),
        TopicPlan(topics.transitions, partitions, {**kept(30), **size}),
        TopicPlan(topics.escalations, partitions, {**kept(30), **size}),
        TopicPlan(topics.dead_letters, partitions, letters),
        TopicPlan(topics.runs_changelog, partitions, changelog),
        TopicPlan(topics.control, partitions, {**kept(1), **size}, alike=False),
        TopicPlan(topics.faults, partitions, {**append_time, **kept(7), **size}),
        TopicPlan(topics.faults_changelog, partitions, {**compact, **size, **safe}),
    ]
    owners = {**compact, "segment.ms": "3600000", **safe}
    return [*wanted, TopicPlan(topics.owners, 1, owners, alike=False)]


class TopicAdmin:
    """Looks at the topics and makes them. Blocking; every call ends within its timeout."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._complaints = Complaints()
        self._options = {**librdkafka_options(settings), "error_cb": self._complaints}
        # Referenced for as long as its futures live: a collected client fails them.
        self._client = connect(AdminClient, self._options)

    def facts(self) -> dict[str, TopicFacts]:
        """Every topic under the prefix, as it is. Raises `KafkaException` if no broker answers,
        `BrokerRefused`.
        """
        found = self._look(_TIMEOUT_S).topics
        prefix = self._settings.prefix + "."
        mine = {name: topic for name, topic in found.items() if name.startswith(prefix)}
        if not mine:
            return {}
        asked = self._client.describe_configs(
            [ConfigResource(ConfigResource.Type.TOPIC, name) for name in mine]
        )
        configs = {
            resource.name: {name: entry.value for name, entry in future.result(_TIMEOUT_S).items()}
            for resource, future in asked.items()
        }
        return {
            name: TopicFacts(
                len(topic.partitions),
                min((len(part.replicas) for part in topic.partitions.values()), default=0),
                configs.get(name, {}),
            )
            for name, topic in mine.items()
        }

    def identity(self, topic: str) -> str:
        """What tells a topic from another one of the same name that was made after it was deleted.

        Raises `KafkaException`.
        """
        asked = self._client.describe_topics(TopicCollection([topic]), request_timeout=_TIMEOUT_S)
        return str(asked[topic].result(_TIMEOUT_S).topic_id)

    def ping(self) -> None:
        """Raises `KafkaException` if no broker answers within a few seconds, `BrokerRefused` if one
        does not let us in.
        """
        self._look(0)

    def _look(self, limit_s: float) -> ClusterMetadata:
        """Ask again until the limit, but not a broker that refuses us."""
        deadline_s = time.monotonic() + limit_s
        while True:
            self._complaints.forget()
            try:
                return self._client.list_topics(timeout=_PING_S)
            except KafkaException as error:
                self._client.poll(_POLL_S)  # what librdkafka has to say is heard here
                if (refusal := self._complaints.refusal(self._options)) is not None:
                    raise refusal from error
                if time.monotonic() >= deadline_s:
                    raise

    def create(self, queues: Iterable[str] = (), partitions: int | None = None) -> list[str]:
        """Make what is missing and mend settings that differ: one line each of what was done.

        Existing queues are kept right too. Never changes a partition count: runs are placed by it.
        Raises `KafkaException`, and `StartRefusedError` for counts that differ.
        """
        settings = self._settings
        topics, facts = settings.topics, self.facts()
        present = facts.get(topics.events)
        count = present.partitions if present else partitions or PARTITIONS_DEFAULT
        if present and partitions not in (None, count):
            fault = f"{topics.events} has {count} partitions, not {partitions}: they place runs"
            raise StartRefusedError((fault,))
        names = {*queues, *queue_names(topics, facts), "default"}
        wanted = plan(
            topics,
            count,
            sorted(names),
            dev=settings.dev,
            archived=settings.archive.enabled,
            erasure=settings.erasure,
        )
        done = self._create_missing([topic for topic in wanted if topic.name not in facts])
        for topic in wanted:
            if topic.name in facts:
                done += self._mend(topic, facts[topic.name])
        return done

    def _create_missing(self, wanted: list[TopicPlan]) -> list[str]:
        if not wanted:
            return []
        replication = 1 if self._settings.dev else REPLICATION
        made = self._client.create_topics(
            [
                NewTopic(topic.name, topic.partitions, replication, config=topic.config)
                for topic in wanted
            ],
            operation_timeout=_TIMEOUT_S,
        )
        for future in made.values():
            try:
                future.result(_TIMEOUT_S)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
        return [f"created {topic.name} ({topic.partitions} partitions)" for topic in wanted]

    def _mend(self, topic: TopicPlan, facts: TopicFacts) -> list[str]:
        wrong = differences(topic, facts)
        if wrong:
            entries = [
                ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
                for name, value in wrong.items()
            ]
            resource = ConfigResource(
                ConfigResource.Type.TOPIC, topic.name, incremental_configs=entries
            )
            for future in self._client.incremental_alter_configs([resource]).values():
                future.result(_TIMEOUT_S)
        return [f"{topic.name}: set {name}={value}" for name, value in wrong.items()]


CHECKED: Final = (
    "message.timestamp.type",
    "cleanup.policy",
    "segment.ms",
    "max.message.bytes",
    "min.insync.replicas",
    "unclean.leader.election.enable",
    "max.compaction.lag.ms",
    "delete.retention.ms",
)
"""Settings that are right or wrong. Retention is only checked for the events: the rest is a
choice.
"""

_AT_LEAST: Final = frozenset({"max.message.bytes", "min.insync.replicas"})
_AT_MOST: Final = frozenset({"segment.ms", "max.compaction.lag.ms", "delete.retention.ms"})


def differences(topic: TopicPlan, facts: TopicFacts) -> Config:
    """Settings of a topic that are wrong, with the value to set."""
    checked: list[str] = [name for name in CHECKED if name in topic.config]
    if topic.config.get("retention.ms") == "-1":
        checked += ["retention.ms", "retention.bytes"]
    return {
        name: topic.config[name]
        for name in checked
        if name not in topic.free
        and not _right(name, facts.config.get(name, ""), topic.config[name])
    }


def _right(name: str, have: str, want: str) -> bool:
    if name in _AT_LEAST:
        return have.isdigit() and int(have) >= int(want)
    if name in _AT_MOST:
        return have.isdigit() and int(have) <= int(want)
    return have == want


def queue_names(topics: Topics, facts: Iterable[str]) -> list[str]:
    """Names of the queues that have a topic."""
    prefix = topics.queue_prefix
    return sorted(name.removeprefix(prefix) for name in facts if name.startswith(prefix))
