"""Plain idempotent producers, shared by the partitions of a process and replaced when spoilt.

On librdkafka, whose threads do the network's work outside Python. It keeps the order and leaves no
gap: with idempotence the broker refuses a batch whose predecessor is missing, and with the gapless
guarantee the client sends nothing more after a record that it had to give up.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from dalsegno.streams.engine.encoding import OutRecord
from dalsegno.streams.engine.errors import OutcomeUnknownError
from dalsegno.streams.engine.security import librdkafka_options
from dalsegno.streams.engine.settings import EngineSettings

BATCH_BYTES_MAX: Final = 1_000_000
"""Below Kafka's default of 1,048,588 for `max.message.bytes`, which holds for whole batches."""

CLOSE_TIMEOUT_S: Final = 2.0
_POLL_S: Final = 0.002
"""How soon an acknowledgement is noticed. Nothing but checkpoints and bounds waits for one."""

_TOPIC_TIMEOUT_S: Final = 5.0

Acked = Callable[[KafkaError | None, Message], None]


class Appended(NamedTuple):
    """Where a record was appended, and when (Unix ms, the broker's clock)."""

    offset: int
    timestamp: int


def producer_options(settings: EngineSettings) -> dict[str, str | int | float | bool]:
    """What every producer of the engine is set to. The engine's own bounds hold the queue small."""
    return {
        **librdkafka_options(settings),
        "acks": "all",
        "batch.size": BATCH_BYTES_MAX,
        "message.max.bytes": BATCH_BYTES_MAX + 65_536,
        "queue.buffering.max.messages": 0,
        "queue.buffering.max.kbytes": 2_000_000,
        "socket.timeout.ms": max(settings.request_timeout_ms, 1_000),
        "request.timeout.ms": settings.request_timeout_ms,
        "topic.metadata.refresh.interval.ms": settings.metadata_age_max_ms,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1_000,
        "allow.auto.create.topics": False,
    }


class IdempotentProducer:
    """One producer. Retriable errors are retried for ever inside; any other one spoils it.

    `linger_ms`: how long a record may wait for others to share its request.
    """

    def __init__(self, settings: EngineSettings, linger_ms: float) -> None:
        self._producer = Producer(
            {
                **producer_options(settings),
                "enable.idempotence": True,
                "enable.gapless.guarantee": True,
                "message.timeout.ms": 0,
                "linger.ms": linger_ms,
            }
        )
        self.spoilt = False
        self._users = 0
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def acquire(self) -> None:
        """Count a user."""
        self._users += 1

    async def release(self) -> None:
        """Give it back. A spoilt producer closes with its last user."""
        self._users -= 1
        if self.spoilt and self._users <= 0:
            await self.close()

    def send(self, record: OutRecord, acked: Acked) -> None:
        """Append a record, after all that were given to it before for the same partition.

        `acked` hears of it on the event loop. Raises `OutcomeUnknownError` if it takes no more.
        """
        try:
            self._producer.produce(
                record.topic,
                record.value,
                record.key,
                record.partition,
                on_delivery=acked,
                headers=record.headers,
            )
        except (KafkaException, BufferError) as error:
            self.spoilt = True
            raise OutcomeUnknownError(f"output to {record.topic}: {error!r}") from error
        if self._timer is None and not self._closed:
            self._timer = self._loop.call_later(_POLL_S, self._poll)

    async def append(self, record: OutRecord) -> Appended:
        """Append one record and wait for it. Raises `OutcomeUnknownError`."""
        done: asyncio.Future[Appended] = self._loop.create_future()

        def acked(error: KafkaError | None, message: Message) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(Appended(message.offset() or 0, message.timestamp()[1]))
            else:
                self.spoilt = True
                done.set_exception(OutcomeUnknownError(f"append to {record.topic}: {error}"))

        self.send(record, acked)
        return await done

    async def knows(self, topic: str) -> bool:
        """Whether the brokers have the topic now. False also while they cannot be asked."""
        try:
            found = await asyncio.to_thread(self._producer.list_topics, topic, _TOPIC_TIMEOUT_S)
        except KafkaException:
            return False
        return topic in found.topics and found.topics[topic].error is None

    def _poll(self) -> None:
        producer = self._producer
        producer.poll(0)
        waiting = len(producer) > 0
        self._timer = self._loop.call_later(_POLL_S, self._poll) if waiting else None

    async def close(self) -> None:
        """Close without waiting for pending data: after a failure it may never leave."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._producer.purge()
        await close_producer(self._producer)


async def close_producer(producer: Producer) -> None:
    """Close a producer within a bound; what is left of it ends with its threads."""
    with contextlib.suppress(TimeoutError, KafkaException):
        await asyncio.wait_for(asyncio.to_thread(producer.close, 0.5), CLOSE_TIMEOUT_S)


class ProducerPool:
    """Hands out the current producer of a lane; a spoilt one is replaced for those who come later.

    Lanes exist because a broker answers the requests of one connection one by one: what a worker
    waits for (handoffs, answers) does not queue behind the audit record.
    """

    def __init__(self, make: Callable[[str], IdempotentProducer]) -> None:
        self._make = make
        self._current: dict[str, IdempotentProducer] = {}

    def acquire(self, lane: str) -> IdempotentProducer:
        """The lane's producer; to be given back by `release`."""
        producer = self._current.get(lane)
        if producer is None or producer.spoilt:
            producer = self._current[lane] = self._make(lane)
        producer.acquire()
        return producer

    async def close(self) -> None:
        """Close what is open."""
        await asyncio.gather(*(producer.close() for producer in self._current.values()))
        self._current.clear()
