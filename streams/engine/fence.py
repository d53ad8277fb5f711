"""The fenced producer of a partition: the group says who should run it, this decides who may
write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import InvalidProducerEpoch, KafkaError, ProducerFenced

from dalsegno.streams.engine.errors import FencedError, OutcomeUnknownError
from dalsegno.streams.engine.producers import BATCH_BYTES_MAX, close_producer
from dalsegno.streams.engine.security import aiokafka_options
from dalsegno.streams.engine.settings import EngineSettings

Place = tuple[str, int]
Entries = Sequence[tuple[bytes, bytes | None]]

_START_TIMEOUTS: Final = 3
_COMMIT_TIMEOUTS: Final = 1.5


class FencedProducer:
    """One transactional producer. Starting it makes every earlier one of the same id fail."""

    def __init__(self, settings: EngineSettings, transactional_id: str) -> None:
        self._timeout_s = settings.transaction_timeout_ms / 1_000
        self._producer = AIOKafkaProducer(
            **aiokafka_options(settings),
            transactional_id=transactional_id,
            transaction_timeout_ms=settings.transaction_timeout_ms,
            acks="all",
            linger_ms=0,
            max_batch_size=BATCH_BYTES_MAX,
        )

    async def start(self) -> None:
        """Fence every earlier producer of this id. Raises `FencedError`, `OutcomeUnknownError`."""
        await self._guard(self._producer.start(), _START_TIMEOUTS)

    async def commit(self, writes: Mapping[Place, Entries]) -> None:
        """Append all entries (None: delete) in one transaction, or none of them.

        Raises `FencedError` if a newer owner is there, `OutcomeUnknownError` for everything else.
        """
        await self._guard(self._transaction(writes), _COMMIT_TIMEOUTS)

    async def _transaction(self, writes: Mapping[Place, Entries]) -> None:
        producer = self._producer
        await producer.begin_transaction()
        sent: list[Awaitable[object]] = []
        for (topic, partition), entries in writes.items():
            sent += await self._send(topic, partition, entries)
        # aiokafka commits although a delivery failed: every one is known good before the commit.
        for result in await asyncio.gather(*sent, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
        await producer.commit_transaction()

    async def _send(self, topic: str, partition: int, entries: Entries) -> list[Awaitable[object]]:
        producer = self._producer
        sent: list[Awaitable[object]] = []
        batch = producer.create_batch()
        for key, value in entries:
            if batch.append(timestamp=None, key=key, value=value) is None:
                batch.close()
                sent.append(await producer.send_batch(batch, topic, partition=partition))
                batch = producer.create_batch()
                batch.append(timestamp=None, key=key, value=value)
        batch.close()
        sent.append(await producer.send_batch(batch, topic, partition=partition))
        return sent

    async def _guard(self, work: Awaitable[object], timeouts: float) -> None:
        try:
            await asyncio.wait_for(work, timeouts * self._timeout_s)
        except (ProducerFenced, InvalidProducerEpoch) as error:
            raise FencedError(repr(error)) from error
        except AssertionError as error:
            # aiokafka asserts its own state: after a fenced send the transaction is in FATAL_ERROR.
            fenced = "FATAL_ERROR" in str(error)
            raise (FencedError if fenced else OutcomeUnknownError)(repr(error)) from error
        except (TimeoutError, KafkaError, OSError) as error:
            raise OutcomeUnknownError(repr(error)) from error

    async def close(self) -> None:
        """Close without waiting for what is pending."""
        await close_producer(self._producer)
