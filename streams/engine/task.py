"""The partition task: owns one partition's state while the partition is ours.

Life: opening (see `opening`) → ready ⇄ busy, or stalled at a bound → closed. Any failure ends the
task for good: it writes nothing more, and its owner makes a new one from the last checkpoint once
the group says that the partition is still ours. A stopped task waits for a person.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum

import structlog

from dalsegno.schemas.codec import encode
from dalsegno.schemas.control import ClockTick, ControlEvent, StallSuspected
from dalsegno.streams.core.controls import RulesUnknown
from dalsegno.streams.core.state_codec import StateCorrupt
from dalsegno.streams.core.warm import WarmLost
from dalsegno.streams.engine.applying import Applying
from dalsegno.streams.engine.archive_bound import ArchiveBound
from dalsegno.streams.engine.batch import Batch, Wanted
from dalsegno.streams.engine.beside import Beside, ahead, folded, full, open_side, unread
from dalsegno.streams.engine.checkpoint import CheckpointDone, Checkpointer, Pace
from dalsegno.streams.engine.closing import Closable, close_each
from dalsegno.streams.engine.context import EngineContext, PartitionActor
from dalsegno.streams.engine.encoding import Encoder
from dalsegno.streams.engine.errors import (
    EngineError,
    OutcomeUnknownError,
    PartitionStoppedError,
)
from dalsegno.streams.engine.fence import FencedProducer
from dalsegno.streams.engine.fold import Fold
from dalsegno.streams.engine.heartbeats import HeartbeatFeed
from dalsegno.streams.engine.opening import Opened, Opening
from dalsegno.streams.engine.outputs import FAST_LANE, RECORD_LANE, Outputs
from dalsegno.streams.engine.producers import Appended
from dalsegno.streams.engine.reader import EventReader
from dalsegno.streams.engine.restore import RestoreProgress
from dalsegno.streams.engine.signing_keys import SigningKeys
from dalsegno.streams.engine.ticking import append_tick
from dalsegno.streams.engine.ticks import TickPlan

log = structlog.get_logger(__name__)


class TaskState(StrEnum):
    """State of a partition task."""

    NEW = "new"
    FENCING = "fencing"
    RESTORING = "restoring"
    READY = "ready"
    BUSY = "busy"
    STALLED = "stalled"
    STOPPED = "stopped"
    CLOSED = "closed"


OPENING = frozenset({TaskState.NEW, TaskState.FENCING, TaskState.RESTORING})
RUNNING = frozenset({TaskState.READY, TaskState.BUSY, TaskState.STALLED})


class PartitionTask:
    """One partition. `lost(task, error)` is called once when it cannot go on."""

    def __init__(
        self,
        context: EngineContext,
        number: int,
        lost: Callable[[PartitionTask, EngineError], None],
        slots: asyncio.Semaphore,
    ) -> None:
        self.number = number
        self.state = TaskState.NEW
        self.error: EngineError | None = None
        self.feed: HeartbeatFeed | None = None
        self.actor: PartitionActor | None = None
        self.ticks = TickPlan()
        self.ticket = 0
        self._context = context
        self._lost = lost
        self._opening = Opening(context, number, slots)
        self._opening_job: asyncio.Task[None] | None = None
        self._fold: Fold | None = None
        self.keys = SigningKeys(context.settings, lambda: self._fold, number)
        self._producer: FencedProducer | None = None
        self._outputs: Outputs | None = None
        self._checkpointer: Checkpointer | None = None
        self.warm: Beside | None = None
        self.archive = ArchiveBound(context.settings.archive, self._moved)
        self._reader = EventReader(context.intake, number)
        self._next_fetch = self._end_offset = self._end_seen = 0
        self._end_seen_s = self._caught_up_s = 0.0

    async def open(self) -> None:
        """Take the partition over. Raises what the steps raise, with nothing left open."""
        self._opening_job = asyncio.current_task()
        self.error = None
        try:
            opened = await self._opening.run(self._step)
            await self._start(opened)
        finally:
            self._opening_job = None
        said = {"position": opened.fold.position, "restored": self._opening.progress.records}
        log.info("partition open", partition=self.number, **said, **self._opening.took)

    def _step(self, name: str) -> None:
        if self.state is not TaskState.CLOSED:
            self.state = TaskState(name)

    async def _start(self, opened: Opened) -> None:
        context, settings = self._context, self._context.settings
        self._producer, fold = opened.producer, opened.fold
        self.warm = open_side(context.warm, self.number, opened, self._fail, self._moved)
        lanes = {lane: context.pool.acquire(lane) for lane in (FAST_LANE, RECORD_LANE)}
        encoder = Encoder(
            settings.topics,
            self.number,
            context.layout.counts,
            size_max=context.layout.size_of,
            encode=encode,
            omitted=context.metrics.output_omitted,
            sign=self.keys.sign,
        )
        self._outputs = Outputs(encoder, lanes, opened.marks, self._fail, self._moved)
        self._checkpointer = Checkpointer(
            fold,
            self._outputs,
            self._producer,
            (settings.topics.runs_changelog, self.number),
            pace=Pace.of(settings),
            failed=self._fail,
            done=self._checkpointed,
            clock=context.clock,
            keeper=self.warm,
        )
        self._fold = fold
        self._next_fetch = fold.position
        if context.monitors is not None:
            self.feed = await HeartbeatFeed.start(context, self, fold.drain_in_flight())
        if context.actors is not None and self.state is not TaskState.CLOSED:
            self.actor = context.actors(context, self.number)
        if self.state is TaskState.CLOSED:
            await self._release()
            return
        self.state = TaskState.READY
        context.joined().wake()

    def wanted(self) -> Wanted | None:
        """The events to read next, or None while it is not ready for any."""
        return Wanted(self._next_fetch, self.ticket) if self.state is TaskState.READY else None

    def take(self, ticket: int) -> bool:
        """Mark it busy with the batch that it asked for under this ticket."""
        if self.state is not TaskState.READY or ticket != self.ticket:
            return False
        self.state = TaskState.BUSY
        return True

    def seen_end(self, end_offset: int, at_s: float) -> None:
        """The log ended there, or before, at that time."""
        self._end_offset = self._end_seen = end_offset
        self._end_seen_s = at_s
        self._reached()

    def _reached(self) -> None:
        if self._next_fetch >= self._end_seen:
            self._caught_up_s = self._end_seen_s

    def process(self, batch: Batch) -> None:
        """Apply a batch: memory, position and counters advance, outputs leave at once.

        This is the task's boundary: whatever is raised here ends this task, and only this one.
        """
        try:
            if batch.ticket == self.ticket and self.state is TaskState.BUSY:
                fold, outputs, _ = self._open_parts()
                signals = self._context.metrics.signals
                applying = Applying(batch, fold, outputs, self._reader, signals)
                ahead(self.warm, batch, lambda: self._slice(applying))
        except Exception as error:
            log.exception("batch not begun", partition=self.number)
            self._fail(OutcomeUnknownError(f"batch: {error!r}"))

    def dropped(self, batch: Batch) -> None:
        """Faust lost the batch: its records are read again."""
        if batch.ticket == self.ticket and self.state is TaskState.BUSY:
            log.warning("batch dropped, read again", partition=self.number)
            self.ticket += 1
            self.state = TaskState.READY

    def _slice(self, applying: Applying) -> None:
        if applying.batch.ticket != self.ticket or self.state is not TaskState.BUSY:
            return  # settled or closed between two slices: what is left is read again
        try:
            through = self._apply(applying)
        except PartitionStoppedError as error:
            self.stop(error)
        except (RulesUnknown, StateCorrupt) as error:
            reason = "rules_unknown" if isinstance(error, RulesUnknown) else "state_corrupt"
            self.stop(PartitionStoppedError(self.number, reason, str(error)))
        except WarmLost as error:
            unread(self.warm, error)
        except Exception as error:
            log.exception("batch failed", partition=self.number)
            self._fail(OutcomeUnknownError(f"batch: {error!r}"))
        else:
            if through and self.state is TaskState.BUSY:
                self._applied(applying.batch)
            elif not through:
                asyncio.get_running_loop().call_soon(self._slice, applying)

    def _apply(self, applying: Applying) -> bool:
        fold, _, checkpointer = self._open_parts()
        before, began_s = fold.position, self._context.clock()
        try:
            return applying.slice(self._context.clock)
        except PartitionStoppedError:
            raise  # between two records: what was applied is whole
        except BaseException:
            # Inside a record: timers may have fired whose outputs never left.
            checkpointer.spoil()
            raise
        finally:
            self._next_fetch = fold.position
            checkpointer.applied(applying.size_bytes)
            self._context.metrics.applied(fold.position - before)
            folded(self.warm, fold.position - before, self._context.clock() - began_s)
            changes = fold.drain_in_flight()
            if self.feed is not None and changes:
                self.feed.attempts(changes, applying.completed)

    def _applied(self, batch: Batch) -> None:
        if batch.records:
            self.ticks.observed(batch.records[-1].timestamp, self._context.clock())
        self._next_fetch = batch.next_position
        self._end_offset = max(self._end_offset, batch.next_position)
        self._reached()
        self.state = TaskState.STALLED
        self._moved()

    def _open_parts(self) -> tuple[Fold, Outputs, Checkpointer]:
        assert self._fold is not None
        assert self._outputs is not None
        assert self._checkpointer is not None
        return self._fold, self._outputs, self._checkpointer

    def _moved(self) -> None:
        """Something was acknowledged, committed, archived or left memory: go on if we may."""
        if self.state is not TaskState.STALLED:
            return
        fold, outputs, checkpointer = self._open_parts()
        many = outputs.unacked > self._context.settings.unacked_outputs_max
        if many or checkpointer.full or full(self.warm):
            return
        if self.archive.full(fold):
            return
        self.state = TaskState.READY
        self._context.joined().wake()

    def _checkpointed(self, done: CheckpointDone) -> None:
        self._context.metrics.checkpointed(done)
        self._moved()

    def tick_owed(self) -> bool:
        """Whether a clock tick has to be appended now. Asked several times a second."""
        fold, now_s = self._fold, self._context.clock()
        if fold is None or not self.keys.key_id:
            return False
        try:
            return self.ticks.due(fold, self.behind_s(now_s), now_s)
        except WarmLost as error:
            unread(self.warm, error)
        except Exception as error:
            log.exception("deadlines not looked at", partition=self.number)
            self._fail(OutcomeUnknownError(f"deadlines: {error!r}"))
        return False

    async def tick(self) -> None:
        """Append a clock tick. One is in flight at a time."""
        fold = self._fold
        if fold is None:
            return
        tick = ClockTick(
            partition=self.number,
            number=self.ticks.number(fold.position),
            source=self._context.settings.owner,
        )
        await append_tick(self.ticks, tick, self.append_control, self._context.clock)

    async def append_control(self, event: ControlEvent) -> Appended:
        """Sign and append to the events topic. Raises `OutcomeUnknownError`."""
        return await self._context.control.append(event, self.keys.key_id)

    async def append_verdicts(self, verdicts: Sequence[StallSuspected]) -> list[int]:
        """Append them to the events topic together: the offset of each."""
        found = await self._context.control.append_all(verdicts, self.keys.key_id)
        return [each.offset for each in found]

    def behind_s(self, now_s: float) -> float:
        """How long ago the fold was last seen at the log's end, in seconds."""
        return max(0.0, now_s - self._caught_up_s)

    def caught_up(self) -> bool:
        """Whether the fold was at the log's end within the last second."""
        return self.state in RUNNING and self.behind_s(self._context.clock()) < 1.0

    @property
    def fold(self) -> Fold | None:
        """The state, for queries: None until it is restored."""
        return self._fold

    @property
    def progress(self) -> RestoreProgress:
        """How far the restore is."""
        return self._opening.progress

    @property
    def events_offset(self) -> int:
        """The fold has applied the events below this offset."""
        return self._fold.position if self._fold is not None else 0

    @property
    def log_ms(self) -> int:
        """Log time of the events, Unix ms."""
        return self._fold.log_ms if self._fold is not None else 0

    @property
    def lag(self) -> int:
        """Records between the fold and the log's end, as last seen."""
        return max(0, self._end_offset - self._next_fetch)

    @property
    def checkpointer(self) -> Checkpointer | None:
        """Its checkpoints, once it is open."""
        return self._checkpointer

    @property
    def missing_topics(self) -> tuple[str, ...]:
        """Topics that its outputs wait for."""
        return self._outputs.missing_topics if self._outputs is not None else ()

    async def settle(self, timeout_s: float) -> None:
        """Stop reading, with a final checkpoint. The state is kept: the partition may stay."""
        self.ticket += 1
        if self._checkpointer is None or self.state not in RUNNING:
            return
        if not await self._checkpointer.settle(timeout_s):
            log.warning("final checkpoint not in time", partition=self.number)
        if self.state is TaskState.BUSY:  # the batch was dropped: its ticket is void
            self.state = TaskState.READY

    def stop(self, error: PartitionStoppedError) -> None:
        """Go no further: a person has to act. What was applied whole is still checkpointed."""
        self.error = error
        self.state = TaskState.STOPPED
        self._context.metrics.stopped(error.reason)
        log.error(
            "partition stopped", partition=self.number, reason=error.reason, detail=error.detail
        )

    def _fail(self, error: EngineError) -> None:
        if self.state is TaskState.CLOSED:
            return
        self.state = TaskState.CLOSED
        self.error = error
        self._lost(self, error)

    async def close(self) -> None:
        """Write nothing more and free everything."""
        was, self.state = self.state, TaskState.CLOSED
        self.ticket += 1
        self._opening.progress.cancelled = True
        job = self._opening_job
        if job is not None and job is not asyncio.current_task():
            log.warning("partition not opened: closed first", partition=self.number, was=was)
            # A former owner must not go on to fence: that would shut the rightful one out.
            job.cancel()
            await asyncio.gather(job, return_exceptions=True)
        await self._release()

    async def _release(self) -> None:
        ends = (each.close for each in self._held() if each is not None)
        await close_each(ends, f"partition {self.number}", partition=self.number)

    def _held(self) -> Iterator[Closable | None]:
        feed, self.feed = self.feed, None
        yield feed
        actor, self.actor = self.actor, None
        yield actor
        yield self._checkpointer
        held = (self.warm, self._outputs, self._producer)
        self.warm = self._outputs = self._producer = None
        yield from held
