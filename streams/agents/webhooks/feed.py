"""Reads the escalations for one target, and keeps in its group what is settled of them.

One consumer without membership: which partitions it reads is told by who owns them. It runs on a
thread of its own, so that nothing of Kafka holds up the engine.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from typing import Final

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from dalsegno.streams.agents.webhooks.ledger import Ledger, LedgerError
from dalsegno.streams.client.threads import Threads
from dalsegno.streams.engine.security import librdkafka_options
from dalsegno.streams.engine.settings import EngineSettings

log = structlog.get_logger(__name__)

_ASK_S: Final = 5.0
_WAIT_S: Final = 0.2
_CLOSE_S: Final = 1.0
CHUNK: Final = 100
"""Records that are taken at a time."""


def group_of(settings: EngineSettings, name: str) -> str:
    """The consumer group whose offsets say what is settled towards a target."""
    return f"{settings.prefix}.webhook.{name}"


class Feed:
    """What one target reads. Raises `KafkaException` for what passes; then it is asked again."""

    def __init__(self, settings: EngineSettings, name: str) -> None:
        self._topic = settings.topics.escalations
        self._consumer = Consumer(
            {
                **librdkafka_options(settings),
                "group.id": group_of(settings, name),
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 500,
                "queued.min.messages": 200,
                "queued.max.messages.kbytes": 4_096,
            }
        )
        self._thread = Threads(1, f"webhook-{name}")
        # Not on the thread that waits for records: an outcome is on record at once.
        self._saver = Threads(1, f"webhook-{name}-offsets")
        self._paused: set[int] = set()

    async def open(self, number: int) -> Ledger:
        """Read a partition on from where its target's group is; the first time from the start."""
        return await self._thread.run(lambda: self._open(number))

    def _open(self, number: int) -> Ledger:
        place = TopicPartition(self._topic, number)
        low, high = self._consumer.get_watermark_offsets(place, timeout=_ASK_S)
        (found,) = self._consumer.committed([place], timeout=_ASK_S)
        if found.error is not None:
            raise KafkaException(found.error)
        try:
            ledger = Ledger.load(found.offset, found.metadata or "")
        except LedgerError as error:
            # Other code wrote it. What was settled behind it may be posted again, by its same id.
            log.warning("webhook offset not understood", partition=number, error=str(error))
            ledger = Ledger(found.offset)
        if not low <= found.offset <= high:
            # No offset yet, or the log does not hold it any more: what is still asked is posted.
            ledger = Ledger(low)
        self._consumer.incremental_assign([TopicPartition(self._topic, number, ledger.base)])
        self._consumer.resume([place])
        self._paused.discard(number)
        return ledger

    async def close_partition(self, number: int) -> None:
        """Read it no further."""
        await self._thread.run(lambda: self._unassign(number))

    def _unassign(self, number: int) -> None:
        self._consumer.incremental_unassign([TopicPartition(self._topic, number)])

    async def read(self, full: Iterable[int]) -> list[Message]:
        """What comes within a moment, of all but the partitions of which too much waits."""
        paused = set(full)
        return await self._thread.run(lambda: self._read(paused))

    def _read(self, full: set[int]) -> list[Message]:
        for change, numbers in (
            (self._consumer.pause, full - self._paused),
            (self._consumer.resume, self._paused - full),
        ):
            assigned = {each.partition for each in self._consumer.assignment()}
            places = [TopicPartition(self._topic, n) for n in sorted(numbers & assigned)]
            if places:
                change(places)
        self._paused = full
        first = self._consumer.poll(_WAIT_S)
        if first is None:
            return []
        found = []
        for message in (first, *self._consumer.consume(CHUNK, 0.0)):
            error = message.error()
            if error is None:
                found.append(message)
            elif error.fatal() or error.code() == KafkaError._AUTO_OFFSET_RESET:
                raise KafkaException(error)
        return found

    async def save(self, ledgers: dict[int, Ledger]) -> None:
        """Commit what is settled."""
        places = []
        for number, ledger in ledgers.items():
            offset, metadata = ledger.save()
            places.append(TopicPartition(self._topic, number, offset, metadata=metadata))
        await self._saver.run(lambda: self._commit(places))

    def _commit(self, places: list[TopicPartition]) -> None:
        for each in self._consumer.commit(offsets=places, asynchronous=False) or ():
            if each.error is not None:
                raise KafkaException(each.error)

    async def close(self) -> None:
        """Disconnect, behind whatever is still under way on either thread: a client that is closed
        under a call takes the process with it. Waits for that within a bound only.
        """
        saved = threading.Event()

        def disconnect() -> None:
            saved.wait()
            self._consumer.close()

        try:
            async with asyncio.timeout(_CLOSE_S):
                await asyncio.gather(self._saver.run(saved.set), self._thread.run(disconnect))
        except TimeoutError:
            log.warning("a reader of escalations takes long to close, and is left to its thread")
        finally:
            self._saver.close()
            self._thread.close()
