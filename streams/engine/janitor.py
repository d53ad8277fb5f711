"""What recurs while an engine runs: ticks, group offsets, the watch over partition counts and the
loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import faust
import structlog
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError
from confluent_kafka import KafkaException

from dalsegno.streams.client.refused import BrokerRefused
from dalsegno.streams.engine import metrics_catalogue as catalogue
from dalsegno.streams.engine.checks import check, layout_of
from dalsegno.streams.engine.daemon import in_daemon_thread
from dalsegno.streams.engine.errors import EngineError, PartitionsChangedError
from dalsegno.streams.engine.ownership import Ownership
from dalsegno.streams.engine.reconciler import Reconciler
from dalsegno.streams.engine.task import RUNNING
from dalsegno.streams.engine.topics_admin import TopicAdmin

log = structlog.get_logger(__name__)

TICK_CHECK_S: Final = 0.1
_SERVICE_REST_S: Final = 1.0

EngineService = Callable[[Ownership], Awaitable[None]]
"""Work beside the partitions that are owned, for as long as the engine runs."""


class Janitor:
    """Owns the recurring work of one engine; it ends with it."""

    def __init__(
        self, ownership: Ownership, app: faust.App, services: Sequence[EngineService] = ()
    ) -> None:
        self._ownership = ownership
        self._app = app
        self._services = services
        self._settings = ownership.context.settings
        self._admin = TopicAdmin(self._settings)
        self._tasks: list[asyncio.Task[None]] = []
        self._ticks: set[asyncio.Task[None]] = set()
        self._committed: dict[TopicPartition, int] = {}

    def start(self) -> None:
        """Begin."""
        settings = self._settings
        every = (
            (TICK_CHECK_S, self._often),
            (settings.offsets_interval_ms / 1_000, self.commit_offsets),
            (settings.metadata_age_max_ms / 1_000, self._check_counts),
        )
        self._tasks = [asyncio.create_task(self._repeat(*entry)) for entry in every]
        self._tasks.append(asyncio.create_task(Reconciler(self._ownership).run()))
        self._tasks += [asyncio.create_task(self._serve(each)) for each in self._services]
        for task in self._tasks:
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Nothing of this ends by itself: without it the engine would only look alive."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("the engine's recurring work failed", exc_info=error)
            self._ownership.stop_engine(error)

    async def _serve(self, service: EngineService) -> None:
        """One that fails begins anew: it costs nobody else anything."""
        while True:
            try:
                await service(self._ownership)
            except Exception:
                # The boundary of a service.
                log.exception("service failed, begins anew")
                self._ownership.context.metrics.count(catalogue.SERVICE_FAILURES)
            await asyncio.sleep(_SERVICE_REST_S)

    async def _repeat(self, interval_s: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            due = time.monotonic() + interval_s
            await asyncio.sleep(interval_s)
            if interval_s == TICK_CHECK_S:
                late_s = max(0.0, time.monotonic() - due)
                self._ownership.context.metrics.observe(catalogue.LOOP_LAG, late_s)
            await work()

    async def _often(self) -> None:
        if self._app.crashed:
            reason = self._app.crash_reason or EngineError("the Faust app crashed")
            self._ownership.stop_engine(reason)
        self._ownership.hearing.look(self._ownership.tasks.values(), time.monotonic())
        for task in self._ownership.tasks.values():
            if task.state in RUNNING and task.tick_owed():
                tick = asyncio.create_task(task.tick())
                self._ticks.add(tick)
                tick.add_done_callback(self._ticks.discard)
                tick.add_done_callback(self._ended)

    async def commit_offsets(self) -> None:
        """Commit checkpointed positions, for lag tools."""
        positions = self._ownership.saved_positions()
        news = {tp: at for tp, at in positions.items() if self._committed.get(tp) != at}
        if not news:
            return
        try:
            await self._ownership.context.joined().commit_positions(news)
        except (KafkaError, TimeoutError) as error:
            log.debug("group offsets not committed", error=repr(error))  # a rebalance, or no broker
        else:
            self._committed |= news

    async def _check_counts(self) -> None:
        """Runs are placed by the partition count: stop rather than go on under another one."""
        try:
            # Its thread may wait for a broker for longer than a stop may take.
            facts = await in_daemon_thread(self._admin.facts, "partition-counts")
        except (KafkaException, TimeoutError) as error:
            log.debug("partition counts not checked", error=repr(error))
            return
        except BrokerRefused as error:
            # One broker that does not know us, as one may that is just starting: the others do.
            log.warning("partition counts not checked", error=str(error))
            return
        context, topics = self._ownership.context, self._settings.topics
        if topics.events not in facts:
            return  # metadata of a broker that is just starting
        now = facts[topics.events].partitions
        if now != context.layout.partitions:
            self._ownership.stop_engine(
                PartitionsChangedError(
                    f"{topics.events} had {context.layout.partitions} partitions and now has {now}"
                )
            )
            return
        uneven = [line for line in check(topics, facts, dev=True).faults if "must be equal" in line]
        if uneven:
            self._ownership.stop_engine(PartitionsChangedError("; ".join(uneven)))
            return
        context.layout = layout_of(topics, facts)  # queues that were made meanwhile

    async def close(self) -> None:
        """End all of it, with a last commit of offsets left to the consumer's stop."""
        everything = [*self._tasks, *self._ticks]
        for task in everything:
            task.cancel()
        await asyncio.gather(*everything, return_exceptions=True)
