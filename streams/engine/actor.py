"""The fault points of one partition of the faults topic, run beside the events partition of the
same number: whoever owns the one owns the other.

Life: fence → restore → read from the checkpoint's position → records → orders → checkpoint. Orders
go to the events partitions that they name and are numbered, so that a repeat after a restore is a
duplicate there. Whatever fails begins again at the fence, as long as the partition is ours.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from typing import Final

import structlog
from aiokafka.errors import KafkaError

from dalsegno.schemas.control import ClockTick, ControlEvent
from dalsegno.schemas.faults_intake import FaultsIntake
from dalsegno.streams.core.actions import Instruct, Output
from dalsegno.streams.core.faultpoint.actors import FaultPoints
from dalsegno.streams.core.state_codec import StateCorrupt
from dalsegno.streams.engine.context import EngineContext
from dalsegno.streams.engine.daemon import in_daemon_thread
from dalsegno.streams.engine.errors import (
    EngineError,
    PartitionStoppedError,
)
from dalsegno.streams.engine.faults_reader import FaultsFeed, FaultsReader
from dalsegno.streams.engine.faults_records import fault_record
from dalsegno.streams.engine.fence import FencedProducer
from dalsegno.streams.engine.opening import claim_of, start_position
from dalsegno.streams.engine.producers import Appended
from dalsegno.streams.engine.raw import RawEvent
from dalsegno.streams.engine.restore import CLAIM_KEY, RestoreJob, RestoreProgress, restore
from dalsegno.streams.engine.signing import Signer
from dalsegno.streams.engine.signing_keys import SigningKeys
from dalsegno.streams.engine.sinks import PartsSink
from dalsegno.streams.engine.ticking import append_tick
from dalsegno.streams.engine.ticks import TickPlan

log = structlog.get_logger(__name__)

ORDERS_LANE: Final = "fault-orders"
_WAIT_S: Final = 0.5
_BACKOFF_FIRST_S: Final = 0.2
_BACKOFF_MAX_S: Final = 15.0


class ActorTask:
    """Runs from its construction to `close`."""

    def __init__(self, context: EngineContext, number: int, reader: FaultsReader) -> None:
        settings = context.settings
        self._reader = reader
        self.number = number
        self.fold: FaultPoints | None = None
        self.stopped: PartitionStoppedError | None = None
        self.ticks = TickPlan()
        self._context = context
        self._topic = settings.topics.faults
        self._partitions = context.layout.counts[self._topic]
        self._intake = FaultsIntake(self._topic, self._partitions, settings.keyring)
        events = settings.topics.events
        self._to_events = Signer(events, context.layout.partitions, settings.keyring)
        self._to_faults = Signer(self._topic, self._partitions, settings.keyring)
        self._keys = SigningKeys(settings, lambda: self.fold, number)
        self._feed: FaultsFeed | None = None
        self._producer: FencedProducer | None = None
        self._commit: asyncio.Task[object] | None = None
        self._committed = -1
        self._committed_s = 0.0
        self._running = asyncio.create_task(self._life())

    async def _life(self) -> None:
        """The boundary of this task: nobody awaits it before `close`."""
        failures = 0
        while True:
            began_s = self._context.clock()
            try:
                await self._open()
                await self._read()
            except PartitionStoppedError as error:
                self._stop(error)
                return
            except (EngineError, KafkaError, OSError, TimeoutError) as error:
                log.warning("fault points begin again", partition=self.number, error=repr(error))
            except Exception:
                # A fault of ours: the log is there, and whoever opens next folds it again.
                log.exception("fault points failed", partition=self.number)
            finally:
                await self._release()
            failures = 1 if self._context.clock() - began_s > _BACKOFF_MAX_S else failures + 1
            await asyncio.sleep(min(_BACKOFF_MAX_S, _BACKOFF_FIRST_S * 2 ** (failures - 1)))
            # A former owner must not fence the rightful one. While a rebalance runs the group says
            # no; whoever stops being the owner closes this task.
            while not await self._still_ours():  # noqa: ASYNC110 - it is a question to the broker
                await asyncio.sleep(_BACKOFF_FIRST_S)

    async def _still_ours(self) -> bool:
        try:
            return await self._context.joined().still_member()
        except Exception:
            # It is asked again: nobody would hear that the fault points stay closed.
            log.exception("membership not known", partition=self.number)
            return False

    def _stop(self, error: PartitionStoppedError) -> None:
        self.stopped = error
        self._context.metrics.stopped(error.reason)
        log.error(
            "fault points stopped",
            partition=self.number,
            reason=error.reason,
            detail=error.detail,
        )

    async def _open(self) -> None:
        settings = self._context.settings
        changelog = settings.topics.faults_changelog
        claim_id = secrets.token_hex(8)
        self._producer = FencedProducer(settings, f"{settings.prefix}-faults-{self.number}")
        await self._producer.start()
        claim = claim_of(self._context, self.number, claim_id)
        await self._producer.commit({(changelog, self.number): [(CLAIM_KEY, claim)]})
        job = RestoreJob(self.number, claim_id, self._topic, changelog)
        sink, progress = PartsSink(), RestoreProgress()
        try:
            found = await in_daemon_thread(
                lambda: restore(settings, job, progress, sink), "restore-faults"
            )
        finally:
            progress.cancelled = True  # given up, its thread would go on
        fold = self._build(sink.parts)
        checkpoint = None if sink.empty else fold.position
        fold.position = start_position(
            self.number, checkpoint, None, found.log_start, found.log_end
        )
        self.ticks = TickPlan()
        self._committed = fold.position
        self._feed = self._reader.open(self.number, fold.position)
        self.fold = fold
        log.info("fault points open", partition=self.number, position=fold.position)

    def _build(self, parts: dict[bytes, bytes]) -> FaultPoints:
        events = self._context.layout.partitions
        keys = self._context.settings.keyring.ids
        if not parts:
            return FaultPoints(self.number, events, mac_keys=keys)
        try:
            return FaultPoints.restore(self.number, events, parts.items(), mac_keys=keys)
        except StateCorrupt as error:
            raise PartitionStoppedError(
                self.number,
                "state_corrupt",
                f"{error}: empty this partition of the faults changelog to fold its log again",
            ) from error

    async def _read(self) -> None:
        assert self._feed is not None
        while True:
            records = await self._feed.next(_WAIT_S)
            if records:
                await self._take(records)
            self._checkpoint()

    async def _take(self, records: Sequence[RawEvent]) -> None:
        fold = self.fold
        assert fold is not None
        made: list[Output] = []
        for raw in records:
            self.ticks.observed(raw.timestamp, self._context.clock())
            made += fold.apply(fault_record(self._intake, fold, raw))
        await self._send(made)

    async def _send(self, made: Sequence[Output]) -> None:
        """All at once: the producer keeps the order within each events partition."""
        if not made:
            return
        if not self._keys.key_id:
            raise PartitionStoppedError(self.number, "no_signing_key", self._keys.notice)
        producer = self._context.pool.acquire(ORDERS_LANE)
        try:
            await producer.append_all(
                self._to_events.record(output.action.event, self._keys.key_id)
                for output in made
                if isinstance(output.action, Instruct)
            )
        finally:
            await producer.release()

    def _checkpoint(self) -> None:
        """All orders of what was applied are acknowledged: what is captured now may be kept.

        Raises what the one before raised: what that captured would be in no later one.
        """
        fold, producer = self.fold, self._producer
        assert fold is not None
        assert producer is not None
        if self._commit is not None:
            if not self._commit.done():
                return
            self._commit.result()
        if fold.position == self._committed:
            return
        now_s = self._context.clock()
        if now_s - self._committed_s < self._context.settings.checkpoint_interval_ms / 1_000:
            return
        self._committed, self._committed_s = fold.position, now_s
        place = (self._context.settings.topics.faults_changelog, self.number)
        self._commit = asyncio.create_task(producer.commit({place: fold.capture()}))

    def tick_owed(self) -> bool:
        """Whether a tick has to be appended now. Asked several times a second."""
        if self.fold is None or self._feed is None or not self._keys.key_id:
            return False
        end = self._feed.end
        behind_s = 0.0 if end is None or self.fold.position >= end else 1.0
        return self.ticks.due(self.fold, behind_s, self._context.clock())

    async def tick(self) -> None:
        """Append a tick. One is in flight at a time."""
        fold, clock = self.fold, self._context.clock
        if fold is None:
            return
        number = self.ticks.number(fold.position)
        tick = ClockTick(partition=self.number, number=number)
        await append_tick(self.ticks, tick, self.append, clock)

    async def append(self, event: ControlEvent) -> Appended:
        """Sign and append to the faults topic. Raises `OutcomeUnknownError`, `NotSignedError`."""
        producer = self._context.pool.acquire(ORDERS_LANE)
        try:
            return await producer.append(self._to_faults.record(event, self._keys.key_id))
        finally:
            await producer.release()

    async def _release(self) -> None:
        self.fold = None
        commit, self._commit = self._commit, None
        if commit is not None:
            commit.cancel()
            await asyncio.gather(commit, return_exceptions=True)
        feed, self._feed = self._feed, None
        if feed is not None:
            self._reader.close(feed)
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close()

    async def close(self) -> None:
        """Write nothing more and free everything. The next owner repeats what was not kept."""
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
