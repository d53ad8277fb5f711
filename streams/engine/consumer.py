"""The Faust consumer of the engine: what the tasks ask for is what they get.

Faust's own drain loop decodes record by record, tracks acknowledgements and seeks by itself. Here
the positions belong to the partition tasks: each loop takes exactly what the ready tasks want from
the poller, and delivers it to the topic's agent as one stream event. Faust's client keeps our place
in the group and fetches nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Coroutine, Sequence
from typing import Any, Final

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from faust.events import Event
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, ConsumerMessage
from mode.threads import WorkerThread

from dalsegno.streams.engine import membership
from dalsegno.streams.engine.batch import Batch, Receiver
from dalsegno.streams.engine.closing import close_each
from dalsegno.streams.engine.deliveries import Deliveries
from dalsegno.streams.engine.errors import (
    EvictedError,
    OffsetGoneError,
    PartitionStoppedError,
    PositionLostError,
)
from dalsegno.streams.engine.lanes import Fetched
from dalsegno.streams.engine.membership import Membership
from dalsegno.streams.engine.ownership import Ownership
from dalsegno.streams.engine.poll import Polled, Poller
from dalsegno.streams.engine.task import RUNNING, PartitionTask

log = structlog.get_logger(__name__)

_POLL_TIMEOUT_S: Final = 0.2
_IDLE_S: Final = 0.02
_ENDS_EVERY_S: Final = 0.25
"""How often the logs' ends are asked for. Being at the end counts for a second."""

_ENDS_BEHIND_S: Final = 0.05
"""The same, while a partition has just been opened."""

_ENDS_TIMEOUT_S: Final = 2.0
_YIELDS: Final = 6
_ASK_TIMEOUT_S: Final = 15.0
_LAST_COMMIT_S: Final = 1.0
_THREAD_END_S: Final = 1.0


class BatchMessage(ConsumerMessage):  # type: ignore[misc]
    """A message that Faust never acknowledges: positions are the tasks'."""

    def on_final_ack(self, _consumer: Any) -> bool:  # noqa: ANN401 - untyped upstream
        """Nothing to commit."""
        return True


class DaemonThread(WorkerThread):  # type: ignore[misc]
    """Holds up nobody's end: aiokafka may wait for a broker for longer than a stop may take."""

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - untyped upstream
        super().__init__(*args, **options)
        self.daemon = True

    def stop(self) -> None:
        """Upstream waits without a limit, and on the loop: nothing else could end meanwhile."""
        if not self.is_stopped.wait(_THREAD_END_S):
            log.warning("the consumer's thread has not ended in time, and is left")


class ConsumerThread(driver.AIOKafkaConsumerThread):  # type: ignore[misc]
    """Faust's consumer thread, with a client that keeps our place in the group and no more."""

    Worker = DaemonThread

    def _create_worker_consumer(self, transport: Any) -> AIOKafkaConsumer:  # noqa: ANN401 - untyped upstream
        client = super()._create_worker_consumer(transport)
        client._isolation_level = "read_committed"  # of the logs' ends
        return client

    async def on_start(self) -> None:
        """Connect, and watch our membership from the first answer on."""
        await super().on_start()
        self.consumer.connected(self._consumer)


class BatchConsumer(driver.Consumer):  # type: ignore[misc]
    """Delivers batches, and tells the ownership what is assigned."""

    def __init__(self, *args: Any, ownership: Ownership, **kwargs: Any) -> None:  # noqa: ANN401 - untyped upstream  # noqa: ANN401 - untyped upstream
        self.ownership = ownership
        self._poller: Poller | None = None
        self._flowing = False
        self._ready = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._looked_s = 0.0
        self._deliveries = Deliveries()
        self.membership: Membership | None = None
        ownership.context.group = self
        super().__init__(*args, **kwargs)

    def _new_consumer_thread(self) -> ConsumerThread:
        return ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    def connected(self, client: AIOKafkaConsumer) -> None:
        """The client is there; called on its thread."""
        context = self.ownership.context
        main = self.ownership.loop

        def evicted(error: EvictedError) -> None:
            main.call_soon_threadsafe(self.ownership.stop_engine, error)

        client._fetcher._fetch_task.cancel()  # what is read comes from the poller
        static = bool(context.settings.name)
        self.membership = Membership(client, context.clock, static, evicted)
        main.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        if self._poller is None:
            context = self.ownership.context
            self._poller = Poller(context.settings, self._ready.set, context.clock)

    async def _on_thread(self, work: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401 - untyped upstream
        loop = self._thread.thread_loop
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))

    @property
    def _client(self) -> AIOKafkaConsumer:
        return self._thread._ensure_consumer()

    def wake(self) -> None:
        """A task is ready for its next batch: perhaps it is there already."""
        self._ready.set()

    def silent_s(self) -> float:
        """For how long the group has not heard us although its broker answers, in seconds."""
        return self.membership.silent_s(self.ownership.context.clock()) if self.membership else 0.0

    def unconfirmed_s(self) -> float:
        """For how long no heartbeat has said that our place is ours, in seconds."""
        if self.membership is None:
            return math.inf
        return self.membership.unconfirmed_s(self.ownership.context.clock())

    async def still_member(self) -> bool:
        """Ask the group whether we are still in it."""
        if self.membership is None:
            return False
        asked = self.membership.still_member(lambda: bool(self.should_stop))
        return bool(await self._on_thread(asked))

    async def committed(self, topic: str, partition: int) -> int | None:
        """The group's offset, or None."""
        asked = membership.committed(self._client, topic, partition)
        async with asyncio.timeout(_ASK_TIMEOUT_S):
            found: int | None = await self._on_thread(asked)
        return found

    async def offset_at(self, topic: str, partition: int, at_ms: int) -> int:
        """The first offset appended at or after `at_ms`, else the end."""
        asked = membership.offset_at(self._client, topic, partition, at_ms)
        async with asyncio.timeout(_ASK_TIMEOUT_S):
            return int(await self._on_thread(asked))

    async def commit_positions(self, positions: dict[TopicPartition, int]) -> None:
        """Commit checkpointed positions for lag tools. Nothing of ours reads on from them."""
        async with asyncio.timeout(_ASK_TIMEOUT_S):
            await self._on_thread(self._client.commit(positions))

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Final checkpoints, before anybody else takes over. State is kept for what stays."""
        self._flowing = False
        await super().on_partitions_revoked(revoked)
        await self.ownership.revoked()

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        """Open what is new, close what is gone. Does not wait: opening must not hold the group."""
        await super().on_partitions_assigned(assigned, generation_id)
        events = self.ownership.context.settings.topics.events
        self.ownership.assigned({tp.partition for tp in assigned if tp.topic == events})
        # Faust resumes its flow when its own recovery is through, and not at all when it thinks
        # that another rebalance is under way. Ours depends on the assignment alone.
        self._flowing = True
        self.app.flow_control.resume()
        await self.app._fetcher.maybe_start()

    async def perform_seek(self) -> None:
        """Positions belong to the tasks."""

    async def on_stop(self) -> None:
        """Final checkpoints and a last commit, then the client leaves. What fails before that must
        not keep a thread alive, the poller's or the client's: nothing else would end it.
        """
        ends = (
            self.ownership.close, self._read_no_more, self._commit_saved, self._leave,
            super().on_stop,
        )  # fmt: skip
        try:
            await close_each(ends, "consumer")
        except BaseExceptionGroup as failures:
            self.ownership.unclean = failures

    async def _read_no_more(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        if self._poller is not None:
            await self._poller.close()

    async def _commit_saved(self) -> None:
        saved = self.ownership.saved_positions()
        if saved:
            with contextlib.suppress(KafkaError, TimeoutError):  # for lag tools only
                async with asyncio.timeout(_LAST_COMMIT_S):
                    await self.commit_positions(saved)

    async def _leave(self) -> None:
        if self.ownership.context.settings.leave and self.membership is not None:
            await self._on_thread(self.membership.leave())

    async def _drain_messages(self, fetcher: Any) -> None:  # noqa: ANN401 - untyped upstream
        """Runs in Faust's fetcher service until it, or the consumer, stops."""
        stopped, fetcher_stopped = self._stopped.is_set, fetcher._stopped.is_set
        try:
            while not (stopped() or fetcher_stopped()):
                if self._poller is None or not self._flowing:
                    await asyncio.sleep(_IDLE_S)
                    continue
                await self._cycle(self._poller)
        except KafkaError as error:
            # Pushed by the group's coordination, such as a missing permission: waiting cannot help.
            if not self.app.should_stop:
                self.ownership.stop_engine(error)
        except asyncio.CancelledError:
            if not self.app.should_stop:
                raise

    async def _cycle(self, poller: Poller) -> None:
        now_s = self.ownership.context.clock()
        for batch in self._deliveries.overdue(now_s):
            batch.receiver.dropped(batch)
        self._look(poller, now_s)
        self._ready.clear()
        asked, wanted = self._wishes()
        records_max = self.ownership.context.settings.batch_records_max
        polled: Polled = poller.take(wanted, records_max, self._runs)
        if not polled:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_TIMEOUT_S):
                    await self._ready.wait()
            return
        for place, error in polled.errors.items():
            self._failed(asked[place][0], place, error)
        busy = [
            task
            for place, fetched in polled.fetched.items()
            if (task := await self._deliver(*asked[place], place, fetched)) is not None
        ]
        # Let the agents run before asking anew: their tasks are then ready for the next batch.
        for _ in range(_YIELDS):
            await asyncio.sleep(0)
            if not any(task.state == "busy" for task in busy):
                break

    def _runs(self, place: TopicPartition) -> bool:
        """Whether its task is at work: then its records are wanted soon."""
        task = self.ownership.tasks.get(place.partition)
        return task is not None and task.state in RUNNING

    def _look(self, poller: Poller, now_s: float) -> None:
        """Now and then: what the group has to say, and where the logs end. Raises what the group's
        coordination pushed to its user.
        """
        looking = self._looking
        if looking is not None:
            if not looking.done():
                return
            self._looking = None
            looking.result()
        tasks = [t for t in self.ownership.tasks.values() if t.state in RUNNING]
        behind = any(not task.caught_up() for task in tasks)
        if now_s - self._looked_s >= (_ENDS_BEHIND_S if behind else _ENDS_EVERY_S):
            self._looked_s = now_s
            self._looking = asyncio.create_task(self._ends(poller, tasks))

    async def _ends(self, poller: Poller, tasks: Sequence[PartitionTask]) -> None:
        asked_s = self.ownership.context.clock()
        places = {TopicPartition(self._events, task.number): task for task in tasks}
        asked = membership.ends(self._client, list(places), _ENDS_TIMEOUT_S)
        ends: dict[TopicPartition, int] = await self._on_thread(asked)
        for place, end in ends.items():
            if self.ownership.tasks.get(place.partition) is places[place]:
                places[place].seen_end(end, asked_s)
        poller.ends(ends)

    @property
    def _events(self) -> str:
        return str(self.ownership.context.settings.topics.events)

    def _wishes(
        self,
    ) -> tuple[dict[TopicPartition, tuple[PartitionTask, int]], dict[TopicPartition, int]]:
        topics = self.ownership.context.settings.topics
        asked: dict[TopicPartition, tuple[PartitionTask, int]] = {}
        wanted: dict[TopicPartition, int] = {}
        for number, task in self.ownership.tasks.items():
            for topic, source in ((topics.events, task), (topics.heartbeats, task.feed)):
                wish = source.wanted() if source is not None else None
                if wish is not None:
                    place = TopicPartition(topic, number)
                    asked[place] = (task, wish.ticket)
                    wanted[place] = wish.position
        return asked, wanted

    async def _deliver(
        self, task: PartitionTask, ticket: int, place: TopicPartition, fetched: Fetched
    ) -> PartitionTask | None:
        if self.ownership.tasks.get(place.partition) is not task:
            return None
        events = place.topic == self._events
        receiver: Receiver
        if events:
            receiver, taken = task, task.take(ticket)
        elif task.feed is not None:
            receiver, taken = task.feed, task.feed.take()
        else:
            return None
        if not taken:
            return None  # the next poll seeks back to what the task wants then
        batch = Batch(receiver, ticket, fetched.records, fetched.next_position, fetched.end_offset)
        await self._put(TP(place.topic, place.partition), batch)
        self._deliveries.sent(batch, self.ownership.context.clock())
        return task if events else None

    async def _put(self, tp: TP, batch: Batch) -> None:
        message = BatchMessage(
            tp.topic, tp.partition, batch.next_position - 1, 0.0, 0,
            None, None, None, None, 0, 0, tp,
            generation_id=self.app.consumer_generation_id,
        )  # fmt: skip
        event = Event(self.app, None, batch, None, message)
        for channel in list(self.app.topics._tp_index[tp]):
            await channel.queue.put(event)

    def _failed(self, task: PartitionTask, place: TopicPartition, error: Exception) -> None:
        if place.topic != self._events:
            if task.feed is not None and isinstance(error, OffsetGoneError):
                self.ownership.restart_feed(task)
            elif task.feed is not None:
                task.feed.give_up(error)
            return
        if isinstance(error, OffsetGoneError):
            task.stop(
                PositionLostError(
                    place.partition,
                    "out_of_range",
                    f"the log no longer holds offset {task.events_offset}: turn retention off and "
                    "restore the events from the archive",
                )
            )
        else:
            task.stop(PartitionStoppedError(place.partition, "fetch_refused", str(error)))
