"""One consumer for all actors of an engine, on a thread of its own; at rest it only waits.

Positions belong to the actors: each says from where it wants to read, and gets every record from
there on, in order. An actor that is slow holds up nobody else; what waits for it is bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from dalsegno.streams.engine.errors import OutcomeUnknownError, PositionLostError
from dalsegno.streams.engine.raw import RawEvent, raw_fault
from dalsegno.streams.engine.security import librdkafka_options
from dalsegno.streams.engine.settings import EngineSettings

log = structlog.get_logger(__name__)

_WAIT_S: Final = 0.5
_CHUNK: Final = 500
_RETRY_S: Final = 0.5
# Batches that may wait for one actor before nothing more is fetched.
_WAITING_MAX: Final = 256


class FaultsFeed:
    """What one actor reads. `position`: of the next record that it has not been handed. `end`: of
    the log, when it was last reached.
    """

    def __init__(self, number: int, position: int) -> None:
        self.number = number
        self.position = position
        self.end: int | None = None
        self._waiting: asyncio.Queue[Sequence[RawEvent] | Exception] = asyncio.Queue()

    @property
    def full(self) -> bool:
        """Whether too much waits for it."""
        return self._waiting.qsize() >= _WAITING_MAX

    def put(self, records: Sequence[RawEvent]) -> None:
        """Hands over what was fetched."""
        self.position = records[-1].offset + 1
        self._waiting.put_nowait(records)

    def fail(self, error: Exception) -> None:
        """It cannot be read from there."""
        self._waiting.put_nowait(error)

    async def next(self, timeout_s: float) -> Sequence[RawEvent]:
        """The next records, none after a while without. Raises `PositionLostError`."""
        try:
            async with asyncio.timeout(timeout_s):
                found = await self._waiting.get()
        except TimeoutError:
            return ()
        if isinstance(found, Exception):
            raise found
        return found


class FaultsReader:
    """Reads the faults topic for the feeds that are open."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._topic = settings.topics.faults
        self._feeds: dict[int, FaultsFeed] = {}
        self._assigned: dict[int, FaultsFeed] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="faults-reader")
        self._running: asyncio.Task[None] | None = None

    def open(self, number: int, position: int) -> FaultsFeed:
        """Read a partition from a position on; an earlier feed of it ends."""
        feed = self._feeds[number] = FaultsFeed(number, position)
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        return feed

    def close(self, feed: FaultsFeed) -> None:
        """Read it no further."""
        if self._feeds.get(feed.number) is feed:
            del self._feeds[feed.number]

    async def _run(self) -> None:
        """Until no feed is open."""
        loop = asyncio.get_running_loop()
        consumer: Consumer | None = None
        self._assigned = {}
        try:
            consumer = self._connect()
            while self._feeds:
                try:
                    self._assign(consumer)
                    if any(feed.full for feed in self._feeds.values()):
                        await asyncio.sleep(_RETRY_S)
                        continue
                    self._hand_out(await loop.run_in_executor(self._thread, _fetch, consumer))
                except KafkaException as error:
                    log.warning("faults topic not read, trying again", error=repr(error))
                    await asyncio.sleep(_RETRY_S)
        except Exception as error:
            # The boundary of this task: its readers open again, with a new consumer.
            log.exception("faults topic not read")
            for feed in self._feeds.values():
                feed.fail(OutcomeUnknownError(f"faults topic: {error!r}"))
            self._feeds.clear()
        finally:
            if consumer is not None:
                # On its thread, after a fetch that may still be under way there.
                self._thread.submit(consumer.close)

    def _connect(self) -> Consumer:
        return Consumer(
            {
                **librdkafka_options(self._settings),
                "group.id": f"{self._settings.group}-faults",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 500,
                "queued.min.messages": 1_000,
            }
        )

    def _assign(self, consumer: Consumer) -> None:
        gone = [n for n, feed in self._assigned.items() if self._feeds.get(n) is not feed]
        if gone:
            consumer.incremental_unassign([TopicPartition(self._topic, n) for n in gone])
            for number in gone:
                del self._assigned[number]
        new = [feed for n, feed in self._feeds.items() if n not in self._assigned]
        if new:
            places = [TopicPartition(self._topic, feed.number, feed.position) for feed in new]
            consumer.incremental_assign(places)
            self._assigned |= {feed.number: feed for feed in new}

    def _hand_out(self, messages: Sequence[Message]) -> None:
        by_number: dict[int, list[RawEvent]] = {}
        strange: KafkaError | None = None
        for message in messages:
            number, error = message.partition(), message.error()
            if error is None and number is not None:
                by_number.setdefault(number, []).append(raw_fault(message))
            elif error is not None and number in self._assigned:
                self._heard(number, error, message.offset())
            elif error is not None:
                strange = error  # about no partition of ours: it is tried again
        for number, records in by_number.items():
            feed = self._feeds.get(number)
            # What was fetched for an earlier feed of the partition says nothing to this one.
            if feed is not None and self._assigned.get(number) is feed:
                feed.put(records)
        if strange is not None:  # only now: what came beside it comes once
            raise KafkaException(strange)

    def _heard(self, number: int, error: KafkaError, offset: int | None) -> None:
        feed = self._feeds.get(number)
        if feed is None or self._assigned.get(number) is not feed:
            return
        if error.code() == KafkaError._PARTITION_EOF:
            feed.end = offset
        elif error.code() == KafkaError._AUTO_OFFSET_RESET or error.fatal():
            detail = f"the faults log no longer holds offset {feed.position}: {error.str()}"
            feed.fail(PositionLostError(number, "out_of_range", detail))


def _fetch(consumer: Consumer) -> list[Message]:
    """Waits for a record, and takes along what is there beside it."""
    first = consumer.poll(_WAIT_S)
    return [] if first is None else [first, *consumer.consume(_CHUNK, 0.0)]
