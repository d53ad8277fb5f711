"""One consumer for all actors of an engine: with nothing to say, one fetch a second in all.

Positions belong to the actors: each says from where it wants to read, and gets every record from
there on, in order. An actor that is slow holds up nobody else; what waits for it is bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError
from aiokafka.structs import ConsumerRecord

from dalsegno.streams.engine.security import aiokafka_options
from dalsegno.streams.engine.settings import EngineSettings

log = structlog.get_logger(__name__)

_POLL_MS: Final = 1_000
_RETRY_S: Final = 0.5
# Batches that may wait for one actor before its partition is fetched no further.
_WAITING_MAX: Final = 64


class FaultsFeed:
    """What one actor reads. `position`: of the next record that it has not been handed."""

    def __init__(self, number: int, position: int) -> None:
        self.number = number
        self.position = position
        self.end: int | None = None
        self._waiting: asyncio.Queue[Sequence[ConsumerRecord] | Exception] = asyncio.Queue()

    @property
    def full(self) -> bool:
        """Whether its partition has to wait."""
        return self._waiting.qsize() >= _WAITING_MAX

    def put(self, records: Sequence[ConsumerRecord]) -> None:
        """Hands over what was fetched."""
        self.position = records[-1].offset + 1
        self._waiting.put_nowait(records)

    def fail(self, error: Exception) -> None:
        """It cannot be read from there."""
        self._waiting.put_nowait(error)

    async def next(self, timeout_s: float) -> Sequence[ConsumerRecord]:
        """The next records, none after a while without. Raises what the brokers said."""
        try:
            found = await asyncio.wait_for(self._waiting.get(), timeout_s)
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
        self._changed = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    def open(self, number: int, position: int) -> FaultsFeed:
        """Read a partition from a position on; an earlier feed of it ends."""
        feed = self._feeds[number] = FaultsFeed(number, position)
        self._changed.set()
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        return feed

    def close(self, feed: FaultsFeed) -> None:
        """Read it no further."""
        if self._feeds.get(feed.number) is feed:
            del self._feeds[feed.number]
            self._changed.set()
        if not self._feeds and self._running is not None:
            self._running.cancel()
            self._running = None

    async def _run(self) -> None:
        while True:
            consumer = AIOKafkaConsumer(
                **aiokafka_options(self._settings),
                enable_auto_commit=False,
                auto_offset_reset="none",
                fetch_max_wait_ms=_POLL_MS,
            )
            try:
                await consumer.start()
                self._changed.set()
                while True:
                    await self._read(consumer)
            except OffsetOutOfRangeError as error:
                self._out_of_range(error)
            except (KafkaError, OSError, TimeoutError) as error:
                log.warning("faults topic not read, trying again", error=repr(error))
            finally:
                with contextlib.suppress(KafkaError, OSError, TimeoutError):
                    await consumer.stop()
            await asyncio.sleep(_RETRY_S)

    def _out_of_range(self, error: OffsetOutOfRangeError) -> None:
        """The log no longer holds what an actor wants: it stops, the others read on."""
        for place in error.args[0]:
            feed = self._feeds.pop(place.partition, None)
            if feed is not None:
                feed.fail(error)

    async def _read(self, consumer: AIOKafkaConsumer) -> None:
        if self._changed.is_set():
            self._changed.clear()
            consumer.assign([TopicPartition(self._topic, number) for number in self._feeds])
            for feed in self._feeds.values():
                consumer.seek(TopicPartition(self._topic, feed.number), feed.position)
        ready = [
            TopicPartition(self._topic, number)
            for number, feed in self._feeds.items()
            if not feed.full
        ]
        if not ready:
            await asyncio.sleep(_RETRY_S)
            return
        got = asyncio.ensure_future(consumer.getmany(*ready, timeout_ms=_POLL_MS))
        woken = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait({got, woken}, return_when=asyncio.FIRST_COMPLETED)
            found = got.result() if got.done() else {}
        finally:
            for each in (got, woken):
                each.cancel()
            await asyncio.gather(got, woken, return_exceptions=True)
        for place, records in found.items():
            reader = self._feeds.get(place.partition)
            # What was fetched for an earlier feed of the partition may lie behind this one's place.
            if reader is not None and records and records[0].offset >= reader.position:
                reader.put(records)
        for number, feed in self._feeds.items():
            feed.end = consumer.highwater(TopicPartition(self._topic, number))
