"""The fenced producer of a partition: the group says who should run it, this decides who may
write.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message

from dalsegno.streams.client.threads import Threads
from dalsegno.streams.engine.errors import FencedError, OutcomeUnknownError
from dalsegno.streams.engine.producers import Handle, producer_options, write_lost
from dalsegno.streams.engine.settings import EngineSettings

Place = tuple[str, int]
Entries = Sequence[tuple[bytes, bytes | None]]

_START_TIMEOUTS: Final = 3
_COMMIT_TIMEOUTS: Final = 1.5
_SLACK_S: Final = 0.5
"""The library's own timeout comes first, so that nothing runs on in the thread."""

_LOOK_S: Final = 0.25
"""How soon a call that waits for the broker sees that the producer is closed."""

_FENCED: Final = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.TRANSACTION_COORDINATOR_FENCED,
    }
)


class FencedProducer:
    """One transactional producer. Starting it makes every earlier one of the same id fail.

    Its calls block, so they run in a thread of its own, one after the other. The thread holds up
    nobody's end, and begins no further call once the producer is closed: what the broker was asked
    for before may still be done.
    """

    def __init__(self, settings: EngineSettings, transactional_id: str) -> None:
        self._timeout_s = settings.transaction_timeout_ms / 1_000
        self._closing = False
        self._thread = Threads(1, transactional_id)
        self._handle = Handle(
            {
                **producer_options(settings),
                "transactional.id": transactional_id,
                "transaction.timeout.ms": settings.transaction_timeout_ms,
                # Until the commit, which sends at once what is left: else each record is a request.
                "linger.ms": 1_000,
            }
        )

    async def start(self) -> None:
        """Fence every earlier producer of this id. Raises `FencedError`, `OutcomeUnknownError`."""
        timeout_s = _START_TIMEOUTS * self._timeout_s

        def begin() -> None:
            self._waiting(self._handle.producer.init_transactions, timeout_s)

        await self._guard(begin, timeout_s + _SLACK_S)

    async def commit(self, writes: Mapping[Place, Entries]) -> Mapping[Place, int]:
        """Append all entries (None: delete) in one transaction, or none of them.

        The offset behind the last of each place, as far as the broker tells.

        Raises `FencedError` if a newer owner is there, `OutcomeUnknownError` for everything else.
        """
        timeout_s = _COMMIT_TIMEOUTS * self._timeout_s
        ends: dict[Place, int] = {}
        topic = next((topic for topic, _ in writes), "")
        await self._guard(
            lambda: self._transaction(writes, ends, timeout_s), timeout_s + _SLACK_S, topic
        )
        return ends

    def _transaction(
        self, writes: Mapping[Place, Entries], ends: dict[Place, int], timeout_s: float
    ) -> None:
        def told(error: KafkaError | None, message: Message) -> None:
            offset, topic, partition = message.offset(), message.topic(), message.partition()
            if error is not None or offset is None or offset < 0:
                return  # or it was there already, and the broker does not say where
            if topic is not None and partition is not None:
                ends[topic, partition] = offset + 1

        self._check_open()
        producer = self._handle.producer
        producer.begin_transaction()
        for (topic, partition), entries in writes.items():
            last = len(entries) - 1
            for at, (key, value) in enumerate(entries):
                if at == last:
                    producer.produce(topic, value, key, partition, on_delivery=told)
                else:
                    producer.produce(topic, value, key, partition)
        # Waits for every delivery, and raises if one of them failed.
        self._waiting(producer.commit_transaction, timeout_s)

    def _waiting(self, call: Callable[[float], object], timeout_s: float) -> None:
        """A call of the library's that goes on where it was when it is made again."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            self._check_open()
            left_s = max(0.0, deadline_s - time.monotonic())
            try:
                call(min(_LOOK_S, left_s))
            except KafkaException as error:
                if error.args[0].code() != KafkaError._TIMED_OUT or left_s <= _LOOK_S:
                    raise
            else:
                return

    def _check_open(self) -> None:
        if self._closing:
            raise OutcomeUnknownError("the producer is closed")

    async def _guard(self, work: Callable[[], object], timeout_s: float, topic: str = "") -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._thread.run(work)
        except KafkaException as error:
            if error.args[0].code() in _FENCED:
                raise FencedError(str(error)) from error
            raise write_lost("transaction", topic, error.args[0]) from error
        except (TimeoutError, BufferError, RuntimeError) as error:
            raise OutcomeUnknownError(repr(error)) from error

    async def close(self) -> None:
        """Close without waiting for what is pending."""
        if self._handle and not self._closing:
            self._closing = True
            self._handle.producer.purge()  # what runs in the thread fails then
            await self._handle.close(self._thread)
