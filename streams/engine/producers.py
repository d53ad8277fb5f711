"""Plain idempotent producers, shared by the partitions of a process and replaced when spoilt."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from aiokafka.structs import RecordMetadata

from dalsegno.streams.engine.encoding import OutRecord
from dalsegno.streams.engine.errors import OutcomeUnknownError
from dalsegno.streams.engine.security import aiokafka_options
from dalsegno.streams.engine.settings import EngineSettings

BATCH_BYTES_MAX: Final = 1_000_000
"""Below Kafka's default of 1,048,588 for `max.message.bytes`, which holds for whole batches."""

_CLOSE_TIMEOUT_S: Final = 2.0


class IdempotentProducer:
    """One aiokafka producer. Retriable errors are retried for ever inside; any other one spoils
    it.
    """

    def __init__(self, settings: EngineSettings) -> None:
        self._producer = AIOKafkaProducer(
            **aiokafka_options(settings),
            enable_idempotence=True,
            acks="all",
            linger_ms=0,
            max_batch_size=BATCH_BYTES_MAX,
        )
        self.spoilt = False
        self._users = 0
        self._started: asyncio.Task[None] | None = None

    async def acquire(self) -> None:
        """Count a user and wait until the producer is connected."""
        self._users += 1
        if self._started is None:
            self._started = asyncio.create_task(self._producer.start())
        try:
            await asyncio.shield(self._started)
        except KafkaError as error:
            self.spoilt = True
            await self.release()
            raise OutcomeUnknownError(f"output producer: {error!r}") from error

    async def release(self) -> None:
        """Give it back. A spoilt producer closes with its last user."""
        self._users -= 1
        if self.spoilt and self._users <= 0:
            await self.close()

    async def send(self, records: Sequence[OutRecord]) -> tuple[Awaitable[RecordMetadata], int]:
        """Append records of one topic partition as one batch, in order: (acknowledgement, how
        many).

        Takes as many as fit; the caller sends the rest after the acknowledgement.
        """
        first = records[0]
        batch = self._producer.create_batch()
        taken = 0
        for record in records:
            entry = batch.append(
                timestamp=None, key=record.key, value=record.value, headers=record.headers
            )
            if entry is None:
                break
            taken += 1
        batch.close()
        ack = await self._producer.send_batch(batch, first.topic, partition=first.partition)
        return ack, taken

    async def close(self) -> None:
        """Close without waiting for pending data: after a failure it may never leave."""
        await close_producer(self._producer)


async def close_producer(producer: Any) -> None:  # noqa: ANN401 - untyped upstream
    """Stop an aiokafka producer within a bound. Its own `stop()` can hang or raise after a
    failure.
    """
    try:
        await asyncio.wait_for(producer.stop(), _CLOSE_TIMEOUT_S)
    except (TimeoutError, KafkaError, AssertionError, OSError):
        with contextlib.suppress(TimeoutError, KafkaError, OSError):
            await asyncio.wait_for(producer.client.close(), _CLOSE_TIMEOUT_S)
        producer._closed = True  # else its finaliser warns of a producer left open


class ProducerPool:
    """Hands out the current producer of a lane; a spoilt one is replaced for those who come later.

    Lanes exist because a producer has one request in flight per broker: what a worker waits for
    (handoffs, answers) does not queue behind the audit record.
    """

    def __init__(self, make: Callable[[], IdempotentProducer]) -> None:
        self._make = make
        self._current: dict[str, IdempotentProducer] = {}

    async def acquire(self, lane: str) -> IdempotentProducer:
        """A connected producer. Raises `OutcomeUnknownError` if it cannot connect."""
        producer = self._current.get(lane)
        if producer is None or producer.spoilt:
            producer = self._current[lane] = self._make()
        await producer.acquire()
        return producer

    async def close(self) -> None:
        """Close what is open."""
        await asyncio.gather(*(producer.close() for producer in self._current.values()))
        self._current.clear()
