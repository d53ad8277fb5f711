"""The owners topic, followed: who has which partition, at which URL; the count runs were laid out
by; and which events topic has been read.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from dalsegno.schemas.codec import decode
from dalsegno.schemas.errors import DecodeError
from dalsegno.schemas.outputs import Claim
from dalsegno.streams.engine.errors import StartRefusedError
from dalsegno.streams.engine.security import aiokafka_options
from dalsegno.streams.engine.settings import EngineSettings

log = structlog.get_logger(__name__)

LAYOUT_KEY: Final = b"layout"
EVENTS_KEY: Final = b"events"
_LAYOUT_FAULT: Final = (
    "the runs are laid out over {0} partitions, the topics have {1}: recreate the topics with {0} "
    "(`kafka-topics --delete`, then `dalsegno topics create --partitions {0}`), or start anew "
    "under another prefix (DALSEGNO_PREFIX)"
)
_EVENTS_FAULT: Final = (
    "{0} is another topic than the one that was read before: it was deleted and made anew, so what "
    "it holds does not follow from the state. Start anew under another prefix; if it is a copy "
    "with the same offsets, append a record with the key `events` and no value to {1}"
)
_POLL_MS: Final = 500
_RETRY_S: Final = 1.0


class OwnersView:
    """Follows the owners topic from its beginning. `claims` by partition, the newest of each."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._place = TopicPartition(settings.topics.owners, 0)
        self._consumer: AIOKafkaConsumer | None = None
        self._task: asyncio.Task[None] | None = None
        self.claims: dict[int, Claim] = {}
        self.layout: int | None = None
        self.events = ""

    async def start(self) -> None:
        """Read to the end, then follow. Raises aiokafka's errors if the brokers do not answer."""
        consumer = AIOKafkaConsumer(
            **aiokafka_options(self._settings),
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=_POLL_MS,
        )
        self._consumer = consumer
        await consumer.start()
        consumer.assign([self._place])
        end = (await consumer.end_offsets([self._place]))[self._place]
        while await consumer.position(self._place) < end:
            await self._read(consumer)
        self._task = asyncio.create_task(self._follow(consumer))

    async def _follow(self, consumer: AIOKafkaConsumer) -> None:
        while True:
            try:
                await self._read(consumer)
            except KafkaError as error:
                # What we know may be old for a while; a proxied call that fails says so.
                log.warning("owners topic not readable, trying again", error=repr(error))
                await asyncio.sleep(_RETRY_S)
            except Exception:
                # The boundary of this task: nobody awaits it before the engine stops.
                log.exception("owners topic not readable, trying again")
                await asyncio.sleep(_RETRY_S)

    async def _read(self, consumer: AIOKafkaConsumer) -> None:
        for records in (await consumer.getmany(timeout_ms=_POLL_MS)).values():
            for record in records:
                self._take(record.key or b"", record.value or b"")

    def _take(self, key: bytes, value: bytes) -> None:
        if key == LAYOUT_KEY:
            self.layout = int(value) if value.isdigit() else None
            return
        if key == EVENTS_KEY:
            self.events = value.decode("utf-8", "replace")
            return
        try:
            claim = decode(value)
        except DecodeError as error:
            log.warning("claim not readable", key=key, error=str(error))
            return
        if isinstance(claim, Claim):
            self.claims[claim.partition] = claim

    async def check_layout(self, partitions: int) -> None:
        """Runs are placed by the partition count: refuse another one than theirs, or record the
        first.

        Raises `StartRefusedError` with both numbers.
        """
        if self.layout is None:
            await self._record(LAYOUT_KEY, str(partitions))
            self.layout = partitions
        elif self.layout != partitions:
            raise StartRefusedError((_LAYOUT_FAULT.format(self.layout, partitions),))

    async def check_events(self, identity: str) -> None:
        """Positions are offsets in one log: refuse another one, or record the first.

        A log that is shorter than a position stops its partition by itself; one that has grown
        beyond it would be read on from there, and what stands before be lost.

        Raises `StartRefusedError`.
        """
        if not self.events:
            await self._record(EVENTS_KEY, identity)
            self.events = identity
        elif self.events != identity:
            topics = self._settings.topics
            raise StartRefusedError((_EVENTS_FAULT.format(topics.events, topics.owners),))

    async def _record(self, key: bytes, value: str) -> None:
        producer = AIOKafkaProducer(
            **aiokafka_options(self._settings), enable_idempotence=True, acks="all"
        )
        await producer.start()
        try:
            await producer.send_and_wait(
                self._place.topic, key=key, value=value.encode(), partition=0
            )
        finally:
            await producer.stop()

    async def close(self) -> None:
        """Stop following."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._consumer is not None:
            # aiokafka hands on the cancellation of its own tasks where a fetch waits for a retry.
            end = (await asyncio.gather(self._consumer.stop(), return_exceptions=True))[0]
            if isinstance(end, Exception):
                log.warning("owners reader left behind", error=repr(end))
