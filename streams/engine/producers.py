"""Plain idempotent producers, shared by the partitions of a process and replaced when spoilt.

On librdkafka, whose threads do the network's work outside Python. It keeps the order and leaves no
gap: with idempotence the broker refuses a batch whose predecessor is missing, and with the gapless
guarantee the client sends nothing more after a record that it had to give up.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import structlog
from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    KafkaException,
    Message,
    Producer,
)

from dalsegno.streams.client.threads import Threads
from dalsegno.streams.engine.closing import raise_failed
from dalsegno.streams.engine.daemon import in_daemon_thread
from dalsegno.streams.engine.encoding import OutRecord
from dalsegno.streams.engine.errors import OutcomeUnknownError, TopicTooSmallError
from dalsegno.streams.engine.security import librdkafka_options
from dalsegno.streams.engine.settings import EngineSettings

log = structlog.get_logger(__name__)

BATCH_BYTES_MAX: Final = 1_000_000
"""Below Kafka's default of 1,048,588 for `max.message.bytes`, which holds for whole batches."""

RECORD_BYTES_MAX: Final = 100_000_000
CLOSE_TIMEOUT_S: Final = 1.0
_POLL_S: Final = 0.002
"""How soon an acknowledgement is noticed. Nothing but checkpoints and bounds waits for one."""

_TOPIC_TIMEOUT_S: Final = 5.0

Acked = Callable[[KafkaError | None, Message], None]


def write_lost(what: str, topic: str, error: KafkaError | None) -> OutcomeUnknownError:
    """What a failed write to a topic is raised as."""
    if error is not None and error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return TopicTooSmallError(topic, error.str())
    return OutcomeUnknownError(f"{what}: {error}")


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
        # Topics differ in what they take; sizes are checked against that before a record is sent.
        "message.max.bytes": RECORD_BYTES_MAX,
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
        options = producer_options(settings)
        self._handle = Handle(
            {
                **options,
                "enable.idempotence": True,
                "enable.gapless.guarantee": True,
                "message.timeout.ms": 0,
                "linger.ms": linger_ms,
            }
        )
        self.spoilt = False
        self._users = 0
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

    def send(self, record: OutRecord, acked: Acked | None) -> None:
        """Append a record, after all that were given to it before for the same partition.

        `acked` hears of it on the event loop; None: nobody does. Raises `OutcomeUnknownError` if
        it takes no more.
        """
        try:
            self._handle.producer.produce(
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
        if self._timer is None:
            self._timer = self._loop.call_later(_POLL_S, self._poll)

    async def append(self, record: OutRecord) -> Appended:
        """Append one record and wait for it. Raises `OutcomeUnknownError`."""
        done: asyncio.Future[Appended] = self._loop.create_future()

        def acked(error: KafkaError | None, message: Message) -> None:
            self.spoilt |= error is not None
            if done.done():
                return
            kind, at_ms = message.timestamp()
            offset = message.offset()
            if error is None and kind == TIMESTAMP_LOG_APPEND_TIME and offset is not None:
                done.set_result(Appended(offset, at_ms))
            else:  # or it was there already, and the broker does not say where
                lost = write_lost(f"append to {record.topic}", record.topic, error)
                done.set_exception(lost)

        self.send(record, acked)
        return await done

    async def append_all(self, records: Iterable[OutRecord]) -> list[Appended]:
        """Append records together and wait for all: where each stands. Raises
        `OutcomeUnknownError`, once nothing of them is under way any more.
        """
        found = await asyncio.gather(*map(self.append, records), return_exceptions=True)
        appended: list[Appended] = []
        for each in found:
            if isinstance(each, BaseException):
                raise each
            appended.append(each)
        return appended

    async def knows(self, topic: str) -> bool:
        """Whether the brokers have the topic now. False also while they cannot be asked."""
        try:
            ask = self._handle.producer.list_topics
            found = await in_daemon_thread(lambda: ask(topic, _TOPIC_TIMEOUT_S), "topics")
        except KafkaException:
            return False
        return topic in found.topics and found.topics[topic].error is None

    def _poll(self) -> None:
        self._timer = None
        if not self._handle:
            return
        producer = self._handle.producer
        try:
            if self.spoilt:
                # What is under way may be neither sent nor given up then: its senders hear of it.
                producer.purge()
            producer.poll(0)
        except KafkaException as error:
            # Said once, and past repair: what is under way is given up with the next look.
            log.warning("producer spoilt", error=str(error))
            self.spoilt = True
        finally:
            if self._timer is None and len(producer):  # who heard may have sent, which sets it
                self._timer = self._loop.call_later(_POLL_S, self._poll)

    async def close(self) -> None:
        """Close without waiting for pending data: after a failure it may never leave."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._handle:
            try:
                self._handle.producer.purge()
                with contextlib.suppress(KafkaException):  # what was in flight leaves a gap: known
                    self._handle.producer.poll(0)  # here, not in the thread that ends it
            finally:
                await self._handle.close(Threads(1, "close"))


class Handle:
    """Owns a librdkafka producer, so that its end happens in a thread and at a known time."""

    def __init__(self, options: dict[str, str | int | float | bool]) -> None:
        self._held = [Producer(options)]

    def __bool__(self) -> bool:
        return bool(self._held)

    @property
    def producer(self) -> Producer:
        """The producer. Raises `OutcomeUnknownError` once it is closed."""
        if not self._held:
            raise OutcomeUnknownError("the producer is closed")
        return self._held[0]

    async def close(self, thread: Threads) -> None:
        """End it in `thread`, after what still runs there; waits for that within a bound only.

        Not by its own `close`, which waits without a limit for a transaction to be aborted.
        """
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await thread.run(self._held.clear)
        except TimeoutError:
            log.warning("a producer takes long to close, and is left to its thread")
        finally:
            thread.close()


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
        """Close what is open, all of it although one of them fails. Raises an `ExceptionGroup`."""
        open_ones, self._current = list(self._current.values()), {}
        ends = await asyncio.gather(
            *(producer.close() for producer in open_ones), return_exceptions=True
        )
        raise_failed(ends, "producers")
