"""Asks the brokers how long their logs keep what, and what is still in them."""

from __future__ import annotations

import asyncio
import time
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from dalsegno.streams.engine.daemon import in_daemon_thread
from dalsegno.streams.engine.forgetting import (
    FOREVER_MS,
    Broker,
    Forgets,
    forgets,
    retention_ms,
    rolled_within_ms,
    topics_of_runs,
)
from dalsegno.streams.engine.security import librdkafka_options
from dalsegno.streams.engine.settings import EngineSettings
from dalsegno.streams.engine.topics_admin import TopicAdmin, TopicFacts

_TIMEOUT_S: Final = 10.0
_FRESH_S: Final = 10.0


class Looked(NamedTuple):
    """The topics and the brokers' intervals, as they were when they were asked."""

    facts: dict[str, TopicFacts]
    broker: Broker


def look(settings: EngineSettings) -> Looked:
    """Blocks. Raises `KafkaException`, `BrokerRefused`."""
    return Looked(TopicAdmin(settings).facts(), broker_of(settings))


def broker_of(settings: EngineSettings) -> Broker:
    """How often brokers look; Kafka's defaults where they may not be asked. Blocks."""
    client = AdminClient(librdkafka_options(settings))
    found = Broker()
    try:
        number = next(iter(client.list_topics(timeout=_TIMEOUT_S).brokers))
        resource = ConfigResource(ConfigResource.Type.BROKER, str(number))
        config = client.describe_configs([resource])[resource].result(_TIMEOUT_S)
    except KafkaException:
        return found
    check = config.get("log.retention.check.interval.ms")
    backoff = config.get("log.cleaner.backoff.ms")
    return Broker(
        found.retention_check_ms if check is None else int(check.value),
        found.cleaner_backoff_ms if backoff is None else int(backoff.value),
    )


class LogAges:
    """What was asked, for some seconds."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._looked: Looked | None = None
        self._at_s = 0.0
        self._lock = asyncio.Lock()

    async def _now(self) -> Looked:
        async with self._lock:
            if self._looked is None or time.monotonic() - self._at_s >= _FRESH_S:
                self._looked = await in_daemon_thread(lambda: look(self._settings), "log-ages")
                self._at_s = time.monotonic()
            return self._looked

    async def dates(self, last_ms: int) -> list[Forgets]:
        """See `forgets`. Raises `KafkaException`."""
        looked = await self._now()
        return forgets(self._settings.topics, looked.facts, last_ms, looked.broker)

    async def changelog(self, last_ms: int) -> tuple[int, int]:
        """By when the changelog has forgotten (Unix ms), and after how long its next record closes
        a file; `FOREVER_MS` for never. Raises `KafkaException`.
        """
        name = self._settings.topics.runs_changelog
        dates = {each.topic: each.by_ms for each in await self.dates(last_ms)}
        rolls_ms = rolled_within_ms((await self._now()).facts[name].config)
        return dates.get(name) or FOREVER_MS, rolls_ms

    async def kept_ms(self, topic: str) -> int:
        """How long a topic keeps a record at least; `FOREVER_MS` without a limit. Raises
        `KafkaException`.
        """
        return retention_ms((await self._now()).facts[topic].config)

    async def held_before(self, partition: int, last_ms: int) -> list[str]:
        """Topics that delete and still have records of up to then. Raises `KafkaException`."""
        facts = (await self._now()).facts
        names = [
            name
            for name in topics_of_runs(self._settings.topics, facts)
            if name in facts and facts[name].config.get("cleanup.policy") != "compact"
        ]
        return await in_daemon_thread(
            lambda: held_before(self._settings, names, partition, last_ms), "log-ages"
        )


def held_before(
    settings: EngineSettings, topics: list[str], partition: int, last_ms: int
) -> list[str]:
    """Those of the topics whose partition has a record of up to `last_ms`. Blocks."""
    consumer = Consumer({**librdkafka_options(settings), "group.id": f"{settings.group}-read"})
    try:
        held: list[str] = []
        for name in topics:
            low, high = consumer.get_watermark_offsets(TopicPartition(name, partition), _TIMEOUT_S)
            asked = [TopicPartition(name, partition, last_ms + 1)]
            (found,) = consumer.offsets_for_times(asked, _TIMEOUT_S)
            first = high if found.offset < 0 else found.offset
            if low < first:
                held.append(name)
        return held
    finally:
        consumer.close()
