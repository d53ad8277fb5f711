"""Which partitions this engine runs, and what happens when that changes or one of them fails."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from typing import Any, Final

import structlog
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from dalsegno.schemas.control import Policy
from dalsegno.streams.engine.closing import raise_failed
from dalsegno.streams.engine.context import EngineContext
from dalsegno.streams.engine.errors import (
    EngineError,
    OutcomeUnknownError,
    PartitionStoppedError,
    TopicTooSmallError,
)
from dalsegno.streams.engine.hearing import Hearing
from dalsegno.streams.engine.task import RUNNING, PartitionTask, TaskState
from dalsegno.streams.engine.topic_room import await_room

log = structlog.get_logger(__name__)

BACKOFF_FIRST_S: Final = 0.2
BACKOFF_MAX_S: Final = 15.0
SETTLE_SHARE: Final = 0.6
"""Of the rebalance timeout: what final checkpoints may take."""

SETTLE_SHARE_STOP: Final = 0.5
"""The same of the stop timeout. The rest is for what has to be closed after them."""


class Ownership:
    """The partition tasks of this process. Runs on the main loop."""

    def __init__(self, context: EngineContext, loop: asyncio.AbstractEventLoop) -> None:
        self.context = context
        self.loop = loop
        self.tasks: dict[int, PartitionTask] = {}
        self.unowned: dict[int, int] = {}  # by partition, as the reconciler found it last
        self.hearing = Hearing()
        self.stopped_by: asyncio.Future[BaseException] = loop.create_future()
        self._jobs: set[asyncio.Task[None]] = set()
        self._closings: set[asyncio.Task[None]] = set()
        self._failures: dict[int, int] = {}
        self._slots = asyncio.Semaphore(context.settings.restores_at_once)
        self.unclean: BaseException | None = None  # what failed while the engine stopped
        self._closing = False

    def stop_engine(self, error: BaseException) -> None:
        """The process has to end with an error; the first one counts."""
        if not self.stopped_by.done():
            self.stopped_by.set_result(error)

    async def revoked(self) -> None:
        """Before a rebalance: final checkpoints of everything. State is kept for what stays."""
        timeout_s = self.context.settings.rebalance_timeout_ms / 1_000 * SETTLE_SHARE
        await asyncio.gather(*(task.settle(timeout_s) for task in self.tasks.values()))

    def assigned(self, partitions: set[int]) -> None:
        """After a rebalance: close what is gone, open what is new, keep what stays.

        A partition that stays needs no restore; should it have been another's in between, the fence
        says so at its next checkpoint. An engine that is stopping takes nothing over any more.
        """
        if self._closing:
            return
        log.info("partitions assigned", partitions=sorted(partitions))
        for number in list(self.tasks):
            if number not in partitions:
                self._close(self.tasks.pop(number))
        for number in sorted(partitions):
            task = self.tasks.get(number)
            # A task that waits for the group's word would be dropped by it: the word is this one.
            if task is None or task.state in (TaskState.NEW, TaskState.CLOSED):
                self._open(number)
        self.context.joined().wake()

    def _open(self, number: int) -> None:
        task = PartitionTask(self.context, number, self.lost, self._slots)
        self.tasks[number] = task
        self._spawn(self._run_opening(task))

    async def _run_opening(self, task: PartitionTask) -> None:
        try:
            await task.open()
        except PartitionStoppedError as error:
            task.stop(error)
        except EngineError as error:
            self.lost(task, error)
        except Exception as error:
            log.exception("opening failed", partition=task.number)
            self.lost(task, OutcomeUnknownError(f"opening: {error!r}"))
        else:
            # A checkpoint that follows proves that it works again; until then failures add up.
            self.loop.call_later(BACKOFF_MAX_S, self._forgive, task)

    def _forgive(self, task: PartitionTask) -> None:
        if self.tasks.get(task.number) is task and task.state is not TaskState.CLOSED:
            self._failures.pop(task.number, None)

    def lost(self, task: PartitionTask, error: EngineError) -> None:
        """A task cannot go on: drop everything it has, and begin again if the group says it is
        ours.
        """
        task.state = TaskState.CLOSED
        log.warning("partition lost", partition=task.number, error=str(error))
        self.context.metrics.rebuilt(type(error).__name__)
        if self.tasks.get(task.number) is not task or self._closing:
            self._close(task)
            return
        self._failures[task.number] = self._failures.get(task.number, 0) + 1
        successor = PartitionTask(self.context, task.number, self.lost, self._slots)
        self.tasks[task.number] = successor
        self._spawn(self._begin_again(task, successor, error))

    async def _begin_again(
        self, old: PartitionTask, new: PartitionTask, error: EngineError
    ) -> None:
        await asyncio.shield(self._close(old))
        policy = old.fold.policy if old.fold is not None else Policy()
        if isinstance(error, TopicTooSmallError):
            await self._await_room(new, policy, error.topic)
        elif self._failures.get(new.number, 1) > 1 and isinstance(error, OutcomeUnknownError):
            # Only the last of many records says why it was not taken: it may be this, or not.
            await self._await_room(new, policy, limit_s=BACKOFF_MAX_S)
        failures = self._failures.get(new.number, 1)
        await asyncio.sleep(min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2 ** (failures - 1)))
        # A former owner that fenced blindly would shut the rightful one out.
        member = await self.context.joined().still_member()
        if self.tasks.get(new.number) is not new or self._closing:
            return  # a newer assignment decided, or it is the end
        if not member:
            log.info("partition given up until it is assigned", partition=new.number)
            del self.tasks[new.number]
            return
        await self._run_opening(new)

    async def _await_room(
        self, task: PartitionTask, policy: Policy, topic: str = "", limit_s: float = math.inf
    ) -> None:
        until_s = self.context.clock() + limit_s

        def wanted() -> bool:
            in_time = self.context.clock() < until_s
            return in_time and self.tasks.get(task.number) is task and not self._closing

        def say(fault: str) -> None:
            task.error = EngineError(fault)
            log.error("partition waits for a topic", partition=task.number, fault=fault)

        if await await_room(self.context.settings, topic, policy, say, wanted):
            self._failures.pop(task.number, None)

    def restart_feed(self, task: PartitionTask) -> None:
        """Its place in the heartbeats is gone (short retention): read on from the look-back
        again.
        """

        async def restart() -> None:
            while task.feed is not None and task.state in RUNNING:
                try:
                    await task.feed.look_back(task)
                except (KafkaError, TimeoutError) as error:
                    log.warning("heartbeats not found, asking again", error=repr(error))
                    await asyncio.sleep(BACKOFF_FIRST_S)
                else:
                    return

        self._spawn(restart())

    def saved_positions(self) -> dict[TopicPartition, int]:
        """Positions of committed checkpoints: what the group may know of."""
        topic = self.context.settings.topics.events
        return {
            TopicPartition(topic, number): task.checkpointer.position
            for number, task in self.tasks.items()
            if task.checkpointer is not None and task.checkpointer.ever_committed
        }

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        job = self.loop.create_task(work)
        self._jobs.add(job)
        job.add_done_callback(self._ended)

    def _close(self, task: PartitionTask) -> asyncio.Task[None]:
        """A closing is never cut short: half closed, its database is left open and its fence up."""
        job = self.loop.create_task(task.close())
        self._closings.add(job)
        job.add_done_callback(self._ended)
        return job

    def _ended(self, job: asyncio.Task[None]) -> None:
        self._jobs.discard(job)
        self._closings.discard(job)
        if not job.cancelled() and job.exception() is not None:
            self.stop_engine(job.exception() or OutcomeUnknownError("job"))

    async def close(self) -> None:
        """Final checkpoints, then close everything. What fails there keeps nothing else open.

        Raises an `ExceptionGroup` of it all at the end. A cancellation cuts the final checkpoints
        short, and no partition's end.
        """
        self._closing = True
        timeout_s = self.context.settings.stop_timeout_ms / 1_000 * SETTLE_SHARE_STOP
        tasks = list(self.tasks.values())
        ends: list[BaseException | None] = []
        try:
            ends += await asyncio.gather(
                *(task.settle(timeout_s) for task in tasks), return_exceptions=True
            )
        finally:
            ends += await asyncio.gather(*(task.close() for task in tasks), return_exceptions=True)
            for job in list(self._jobs):
                job.cancel()
            await asyncio.gather(*self._jobs, return_exceptions=True)
            while self._closings:
                ends += await asyncio.gather(*self._closings, return_exceptions=True)
        raise_failed(ends, "partitions")
