"""What the monitors of an engine ask of Kafka: canaries, ends of logs, and marks of queues."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import partial
from typing import Final, NamedTuple, Protocol

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from confluent_kafka import KafkaError as ProduceError
from confluent_kafka import Message, Producer

from dalsegno.schemas import codec
from dalsegno.schemas.liveness import Canary, Mark
from dalsegno.streams.client.marks import parse_mark
from dalsegno.streams.engine.security import aiokafka_options, librdkafka_options
from dalsegno.streams.engine.settings import EngineSettings

log = structlog.get_logger(__name__)

ANSWER_TIMEOUT_S: Final = 5.0
_CLOSE_TIMEOUT_S: Final = 2.0


class Ends(NamedTuple):
    """Where both logs of a partition end (exclusive, last stable offsets)."""

    events: int
    heartbeats: int


class LivenessBroker(Protocol):
    """Kafka, as the monitors need it. All but `canary` raise `KafkaError` or `TimeoutError`."""

    async def start(self) -> None:
        """Connect. May be repeated until it works."""

    async def canary(self, canary: Canary) -> None:
        """Append a canary; one that cannot be appended now is dropped, the next will do."""

    async def ends(self, partitions: Collection[int]) -> dict[int, Ends]:
        """Ask where the logs of these partitions end now."""

    async def marks(self, queue: str, partitions: Collection[int]) -> list[Mark]:
        """Read the marks that the queue's group committed for these partitions."""

    async def close(self) -> None:
        """Disconnect."""


class KafkaLivenessBroker:
    """A producer that keeps nothing for long, a consumer that only asks, and an admin client.

    The producer has its own threads: aiokafka's leaves tasks behind when it is closed while
    canaries wait for a broker that is away.
    """

    def __init__(self, settings: EngineSettings) -> None:
        options = aiokafka_options(settings)
        self._topics = settings.topics
        self._producer = Producer(
            {
                **librdkafka_options(settings),
                "acks": 1,
                "linger.ms": 0,
                "message.timeout.ms": settings.request_timeout_ms,
                "allow.auto.create.topics": False,
            }
        )
        # Only committed records count as read, so the ends are those of committed records too.
        self._consumer = AIOKafkaConsumer(**options, isolation_level="read_committed")
        self._admin = AIOKafkaAdminClient(**options)
        self._reading = False
        self._on_the_way: set[int] = set()

    async def start(self) -> None:
        """Connect. May be repeated: what is connected already, and would refuse that, stays so."""
        if not self._reading:
            await self._consumer.start()
            self._reading = True
        await self._admin.start()

    async def canary(self, canary: Canary) -> None:
        """Append without waiting; while one of the partition is on its way, none follows it."""
        self._producer.poll(0)  # what became of the ones before
        if canary.partition in self._on_the_way:
            return
        self._producer.produce(
            self._topics.heartbeats,
            codec.encode(canary),
            key=str(canary.partition).encode(),
            partition=canary.partition,
            on_delivery=partial(self._appended, canary.partition),
        )
        self._on_the_way.add(canary.partition)

    def _appended(self, partition: int, error: ProduceError | None, _message: Message) -> None:
        self._on_the_way.discard(partition)
        if error is not None:
            log.warning("canary lost", partition=partition, error=error.str())

    async def ends(self, partitions: Collection[int]) -> dict[int, Ends]:
        """One request per broker for both topics."""
        events, heartbeats = self._topics.events, self._topics.heartbeats
        places = [TopicPartition(t, p) for t in (events, heartbeats) for p in partitions]
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            found = await self._consumer.end_offsets(places)
        return {
            p: Ends(found[TopicPartition(events, p)], found[TopicPartition(heartbeats, p)])
            for p in partitions
        }

    async def marks(self, queue: str, partitions: Collection[int]) -> list[Mark]:
        """What is in the metadata of the group's committed offsets, where it is ours."""
        topic = self._topics.queue(queue)
        places = [TopicPartition(topic, partition) for partition in partitions]
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            found = await self._admin.list_consumer_group_offsets(topic, partitions=places)
        marks = (
            parse_mark(committed.metadata, queue, place.partition)
            for place, committed in found.items()
        )
        return [mark for mark in marks if mark is not None]

    async def close(self) -> None:
        """Disconnect; canaries on their way are dropped."""
        self._producer.purge()
        self._producer.flush(0)
        for stop in (self._consumer.stop, self._admin.close):
            try:
                async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                    await stop()
            except (TimeoutError, KafkaError, OSError) as error:
                log.warning("liveness client left behind", error=repr(error))
