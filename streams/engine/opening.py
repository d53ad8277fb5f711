"""How a partition is taken over, in this order:

1. fence: start the transactional producer, so that the previous owner's next checkpoint fails;
2. claim: append it to the changelog and the owners topic, in one transaction;
3. restore: read the changelog until the claim shows, in bulk; state as of position X;
4. check X against the log: nothing ever resets to earliest or latest by itself.

Replay from X is the ordinary loop: what the output topics already have is skipped.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from dalsegno import __version__
from dalsegno.schemas.codec import encode
from dalsegno.schemas.outputs import Claim
from dalsegno.storage.errors import StoreError
from dalsegno.storage.warm import WarmStore
from dalsegno.streams.core.controls import RULES_KNOWN
from dalsegno.streams.core.sequence import Sequence
from dalsegno.streams.core.state_codec import StateCorrupt
from dalsegno.streams.engine.context import EngineContext
from dalsegno.streams.engine.daemon import in_daemon_thread
from dalsegno.streams.engine.errors import (
    OutcomeUnknownError,
    PartitionStoppedError,
    PositionLostError,
)
from dalsegno.streams.engine.fence import FencedProducer
from dalsegno.streams.engine.fold import Fold
from dalsegno.streams.engine.restore import (
    CLAIM_KEY,
    Restored,
    RestoreJob,
    RestoreProgress,
    restore,
)
from dalsegno.streams.engine.sinks import UNPACKED, PartsSink, StoreSink


@dataclass(frozen=True, slots=True)
class Opened:
    """A partition that is ours: its state at X, its fence, and what its output topics already
    have. `sizes`: of its parts, where they are all in memory.
    """

    fold: Fold
    producer: FencedProducer
    marks: dict[str, Sequence]
    store: WarmStore | None = None
    sizes: Mapping[bytes, int] = field(default_factory=dict)


def start_position(
    partition: int, checkpoint: int | None, committed: int | None, log_start: int, log_end: int
) -> int:
    """Where to read on. Raises `PositionLostError` where that is not certain.

    `checkpoint`: X of the changelog; `committed`: the group's offset. Either is None if there is
    none.
    """
    bounds = f"the log holds {log_start} to {log_end}"
    if checkpoint is None:
        if log_start == 0 and committed is None:
            return 0
        raise PositionLostError(
            partition,
            "no_checkpoint",
            f"the changelog has no checkpoint, though the partition was read before ({bounds}, the "
            f"group's offset is {committed}): restore the changelog topic",
        )
    if checkpoint < log_start:
        raise PositionLostError(
            partition,
            "behind_log_start",
            f"the checkpoint is at {checkpoint}, {bounds}: events in between are gone; "
            "turn retention off and restore them from the archive",
        )
    if checkpoint > log_end:
        raise PositionLostError(
            partition,
            "beyond_log_end",
            f"the checkpoint is at {checkpoint}, {bounds}: the log lost acknowledged events; "
            "check replication and unclean.leader.election.enable",
        )
    return checkpoint


def claim_of(context: EngineContext, partition: int, claim_id: str) -> bytes:
    """The record by which this engine says that the partition is its own."""
    return encode(
        Claim(
            partition=partition,
            owner=context.settings.owner,
            url=context.url,
            claim_id=claim_id,
            rules_known=RULES_KNOWN,
            code_version=__version__,
            claimed_at_ms=time.time_ns() // 1_000_000,
        )
    )


class Opening:
    """Takes one partition over. Not reused."""

    def __init__(self, context: EngineContext, partition: int, slots: asyncio.Semaphore) -> None:
        self._context = context
        self._partition = partition
        self._slots = slots
        self._claim_id = secrets.token_hex(8)
        self._sink: PartsSink | StoreSink = PartsSink()
        self.progress = RestoreProgress()
        self.took: dict[str, float] = {}
        """Seconds of the fence with its claim, and of the restore with its wait for a slot."""

    async def run(self, step: Callable[[str], None]) -> Opened:
        """Fence, claim, restore, check. `step` hears the name of each. Raises what the steps raise,
        with nothing left open.
        """
        settings, clock = self._context.settings, self._context.clock
        began_s = clock()
        step("fencing")
        producer = FencedProducer(settings, f"{settings.prefix}-events-{self._partition}")
        try:
            await producer.start()
            await producer.commit(self._claim())
            fenced_s = clock()
            step("restoring")
            async with self._slots:
                restored = await self._restore()
                fold = await asyncio.to_thread(self._build)
            await self._place(fold, restored)
            self.took = {
                "fence_s": round(fenced_s - began_s, 3),
                "restore_s": round(clock() - fenced_s, 3),
            }
        except BaseException as error:
            self.progress.cancelled = True
            try:
                await producer.close()
            finally:
                await asyncio.shield(asyncio.to_thread(self._give_up, error))
            raise
        if isinstance(self._sink, StoreSink):
            return Opened(fold, producer, restored.marks, self._sink.store)
        return Opened(fold, producer, restored.marks, sizes=self._sink.sizes())

    def _give_up(self, error: BaseException) -> None:
        if isinstance(self._sink, StoreSink):
            self._sink.give_up(error if isinstance(error, StoreError) else None)

    def _claim(self) -> dict[tuple[str, int], list[tuple[bytes, bytes | None]]]:
        topics = self._context.settings.topics
        claim = claim_of(self._context, self._partition, self._claim_id)
        return {
            (topics.runs_changelog, self._partition): [(CLAIM_KEY, claim)],
            (topics.owners, 0): [(str(self._partition).encode(), claim)],
        }

    async def _restore(self) -> Restored:
        context = self._context
        topics = context.settings.topics
        channels = {
            "transitions": topics.transitions,
            "escalations": topics.escalations,
            "dead-letters": topics.dead_letters,
            **{f"queue.{name}": topics.queue(name) for name in context.layout.queues},
        }
        job = RestoreJob(
            self._partition, self._claim_id, topics.events, topics.runs_changelog, channels
        )
        why: StoreError | None = None
        for sink in self._sinks():
            self._sink = sink
            try:
                return await in_daemon_thread(partial(self._read, job, sink), "restore")
            except StoreError as error:
                why = error
                await asyncio.to_thread(self._give_up, error)
        raise OutcomeUnknownError(f"room for the partition: {why}")

    def _read(self, job: RestoreJob, sink: PartsSink | StoreSink) -> Restored:
        return restore(self._context.settings, job, self.progress, sink)

    def _sinks(self) -> list[PartsSink | StoreSink]:
        """A store that turns out damaged is made anew once; then all stays in memory, if it may."""
        warm = self._context.warm
        if warm is None:
            return [PartsSink()]
        room = warm.room() // UNPACKED // self._context.settings.restores_at_once
        return [StoreSink(warm, self._partition), StoreSink(warm, self._partition), PartsSink(room)]

    def _build(self) -> Fold:
        topic = self._context.settings.topics.events
        sink, keys = self._sink, self._context.settings.keyring.ids
        if isinstance(sink, PartsSink) and not sink.parts:
            return self._context.folds(self._partition, mac_keys=keys, topic=topic)
        try:
            if isinstance(sink, StoreSink):
                return self._context.folds.open(
                    self._partition, sink.opened, mac_keys=keys, topic=topic
                )
            return self._context.folds.restore(self._partition, sink.parts.items(), topic=topic)
        except StateCorrupt as error:
            raise PartitionStoppedError(
                self._partition,
                "state_corrupt",
                f"{error}: to fold the log again, empty this changelog partition "
                "and delete the group's offset",
            ) from error

    async def _place(self, fold: Fold, restored: Restored) -> None:
        checkpoint = None if self._sink.empty else fold.position
        committed = None
        if checkpoint is None:
            events = self._context.settings.topics.events
            committed = await self._context.joined().committed(events, self._partition)
        fold.position = start_position(
            self._partition, checkpoint, committed, restored.log_start, restored.log_end
        )
