"""One life of a worker, from its hello to its last report.

Opening: 1. read the group's marks; 2. hello, whose offset is the incarnation; 3. join the group.
A step: 1. commit (in `consumer`); 2. `StepStarted`; 3. acknowledged with an append time before
`start_by`; 4. body. Whatever fails before 4 starts nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial

from dalsegno.schemas.events import StepProgressed, StepStarted
from dalsegno.schemas.outputs import Answer, AnswerType, Handoff
from dalsegno.streams.client.answers import AnswerReader, reply_address
from dalsegno.streams.client.attempt import Attempt, StopReason
from dalsegno.streams.client.blobs import Blobs
from dalsegno.streams.client.clocks import Clocks
from dalsegno.streams.client.config import ClientConfig, WorkerConfig
from dalsegno.streams.client.consumer import QueueConsumer, Taken
from dalsegno.streams.client.context_versions import RELEASED, mismatch
from dalsegno.streams.client.errors import DeliveryFailed, SettingsError
from dalsegno.streams.client.event_encoder import EventEncoder
from dalsegno.streams.client.heartbeats import Heartbeats
from dalsegno.streams.client.hello import came_from_elsewhere, say_hello
from dalsegno.streams.client.holding import Holding
from dalsegno.streams.client.marks import Seen
from dalsegno.streams.client.naming import WorkerName
from dalsegno.streams.client.outbox import Outbox
from dalsegno.streams.client.producer import OutRecord, Producer, Receipt
from dalsegno.streams.client.reporter import Reporter
from dalsegno.streams.client.runner import NOT_KEPT, Runner, not_kept
from dalsegno.streams.client.step import Step
from dalsegno.streams.client.threads import to_its_end

_LOG = logging.getLogger("dalsegno.worker")
_SURELY_LATE_MS = 2_000  # beyond what append times go back at a change of leader
_CANCEL_S = 1.0  # for bodies to notice that they were cancelled, at the end of a stop
_STOPS = {AnswerType.SUPERSEDED: StopReason.SUPERSEDED, AnswerType.CANCELLED: StopReason.CANCELLED}


class Ending(Enum):
    """How a session ended: `LEASE` and a new one may begin; `FENCED` and the worker must not go
    on.
    """

    STOPPED = "stopped"
    LEASE = "lease"
    FENCED = "fenced"


@dataclass(slots=True)
class WorkerCounts:
    """What a worker has done since it began. `late`: start limit passed, so not started."""

    started: int = 0
    late: int = 0
    released: int = 0
    stopped: int = 0


class Session:
    """Owns everything of one incarnation but the producer. `ended` is done when it cannot go on."""

    def __init__(
        self,
        config: ClientConfig,
        settings: WorkerConfig,
        *,
        clocks: Clocks,
        steps: Mapping[tuple[str, int, str], Step],
        name: WorkerName,
        producer: Producer,
        counts: WorkerCounts,
        encode: EventEncoder,
        blobs: Blobs | None = None,
        undelivered: dict[int, OutRecord] | None = None,
    ) -> None:
        self._config = config
        self._settings = settings
        self._clocks = clocks
        self._steps = steps
        self._name = name
        self._producer = producer
        self._counts = counts
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[Ending] = self._loop.create_future()
        self.detail = ""
        self._holding: Holding[Attempt] = Holding(settings.concurrency)
        self._outbox = Outbox(producer, self._loop, undelivered)
        self._encode = encode
        self._blobs = blobs
        self._reporter = Reporter(
            config.topics.events, name.name, reply_address(name.name), clocks, encode
        )
        self._runner = Runner(
            self._holding,
            self._outbox,
            self._reporter,
            self._lease_holds,
            threads=settings.concurrency,
        )
        self._consumers: list[QueueConsumer] = []
        self._answers: AnswerReader | None = None
        self._heartbeats: Heartbeats[Attempt] | None = None
        self._incarnation = -1
        self._append_ms = 0
        self._append_s = 0.0
        self._closing = False
        self._start_told = asyncio.Event()  # what became of one that was under way

    async def open(self) -> None:
        """Introduce the worker and join. May be repeated after `DeliveryFailed`,
        `KafkaException` or `RegistryUnavailable`.
        """
        await to_its_end(self._introduce)

    async def close(self) -> None:
        """Take nothing more, release what is not started, wait for what runs, up to the bound."""
        self._closing = True
        # From the last to the first, all of it although one part fails.
        async with contextlib.AsyncExitStack() as ends:
            ends.callback(self._runner.close)
            ends.push_async_callback(self._stop_answers)
            ends.push_async_callback(self._stop_heartbeats)
            ends.push_async_callback(self._end_attempts)
            await asyncio.to_thread(self._stop_consumers)

    async def _end_attempts(self) -> None:
        over = self.ended.done() and self.ended.result() is not Ending.STOPPED
        if over:
            self._stop_all(self._holding.all(), StopReason.LEASE)
        drained = asyncio.ensure_future(self._drain())
        done, _ = await asyncio.wait(
            [drained], timeout=_CANCEL_S if over else self._settings.stop_timeout_ms / 1_000
        )
        if not done:
            self._stop_all(self._holding.all(), StopReason.SHUTDOWN)
            await asyncio.wait([drained], timeout=_CANCEL_S)
            drained.cancel()

    async def _stop_heartbeats(self) -> None:
        if self._heartbeats is not None:
            await asyncio.to_thread(self._heartbeats.stop)

    async def _stop_answers(self) -> None:
        if self._answers is not None:
            await asyncio.to_thread(self._answers.close)

    async def _drain(self) -> None:
        """Until nothing is under way: a start that may be in the log has its body, or is given
        back.
        """
        await self._runner.drain()
        while any(attempt.stopped is None for attempt in self._holding.all()):
            self._start_told.clear()
            await self._start_told.wait()
            await self._runner.drain()

    def _introduce(self) -> None:
        """In a thread: all of it blocks on the broker."""
        config, settings, name = self._config, self._settings, self._name
        self._encode.prepare()
        count = self._producer.partition_count(config.topics.events)
        if self._answers is None:
            control = self._producer.partition_count(config.topics.control)
            self._answers = AnswerReader(config, self._reporter.reply_to, control, self._on_answer)
        if not self._consumers:
            self._consumers = self._make_consumers(count)
        marks = [mark for consumer in self._consumers for mark in consumer.marks(count)]
        receipt = say_hello(
            self._producer,
            config.topics.heartbeats,
            worker=name.name,
            host=name.host,
            marks=marks,
            sent_at_ms=self._clocks.wall_ms(),
            timeout_s=config.delivery_timeout_ms / 1_000,
        )
        elsewhere = came_from_elsewhere(name.name, marks, name.last_incarnation())
        name.remember(receipt.offset)
        self._incarnation = receipt.offset
        self._anchor(receipt)
        self._heartbeats = self._make_heartbeats()
        self._heartbeats.start()
        wait_s = settings.lease_ms / 1_000 if elsewhere else 0.0
        if elsewhere:
            _LOG.info("%s ran on another host before: taking nothing for %g s", name.name, wait_s)
        for consumer in self._consumers:
            consumer.start(name.name, self._incarnation, self._clocks.lease_s() + wait_s)

    def _make_consumers(self, count: int) -> list[QueueConsumer]:
        """One group member per queue that the flows name, each with as many partitions as the
        events.
        """
        queues = sorted({step.queue for step in self._steps.values()})
        for queue in queues:
            topic = self._config.topics.queue(queue)
            if (found := self._producer.partition_count(topic)) != count:
                raise SettingsError(
                    f"{topic} has {found} partitions and the events have {count}: they must be "
                    "equal"
                )
        seen = Seen(self._settings.seen_max)
        return [
            QueueConsumer(
                self._config,
                self._settings.consumer(
                    self._config,
                    self._name.name,
                    self._config.topics.queue(queue),
                    self._name.name,
                ),
                queue,
                holding=self._holding,
                seen=seen,
                take=self._take,
                fenced=self._on_fenced,
                broken=self._on_broken,
                clocks=self._clocks,
            )
            for queue in queues
        ]

    def _make_heartbeats(self) -> Heartbeats[Attempt]:
        return Heartbeats(
            self._producer,
            self._config.topics.heartbeats,
            self._holding,
            self._on_lease_lost,
            worker=self._name.name,
            incarnation=self._incarnation,
            interval_s=self._settings.heartbeat_interval_ms / 1_000,
            lease_s=self._settings.lease_ms / 1_000,
            clocks=self._clocks,
        )

    def _stop_consumers(self) -> None:
        with contextlib.ExitStack() as ends:
            for consumer in self._consumers:
                ends.callback(consumer.stop)

    def _lease_holds(self, attempt: Attempt) -> bool:
        return self._heartbeats is not None and self._heartbeats.lease_holds(attempt)

    # In a consumer's thread.

    def _take(self, batch: Sequence[Taken]) -> None:
        """The commit is certain: report the start of each, or give back what cannot be started."""
        for taken in batch:
            handoff = taken.handoff
            step = self._steps.get((handoff.flow, handoff.flow_version, handoff.step))
            if step is None or self._closing:
                self._give_back(taken, "stopping" if step else "no_compatible_worker")
            elif (unreadable := mismatch(handoff, step.schema)) is not None:
                _LOG.warning("%s given back: %s", handoff.step, unreadable)
                self._give_back(taken, RELEASED, str(unreadable))
            elif handoff.start_by_ms <= self._append_time_ms() - _SURELY_LATE_MS:
                self._counts.late += 1
                self._holding.give_back(1)
            else:
                self._report_start(taken, step)

    def _report_start(self, taken: Taken, step: Step) -> None:
        handoff = taken.handoff
        attempt = Attempt(handoff, step, taken.partition, taken.trace, self._blobs)
        attempt.started_sent_s = self._clocks.lease_s()
        self._holding.add(attempt)
        reporter = self._reporter
        event = StepStarted(
            run_id=handoff.run_id,
            source=reporter.source,
            sent_at_ms=reporter.wall_ms(),
            reply_to=reporter.reply_to,
            step=handoff.step,
            epoch=handoff.epoch,
            worker=self._name.name,
            incarnation=self._incarnation,
        )
        self._outbox.post(reporter.record(event, taken.partition), partial(self._started, attempt))

    def _give_back(self, taken: Taken, reason: str, detail: str = "") -> None:
        self._counts.released += 1
        self._holding.give_back(1)
        self._loop.call_soon_threadsafe(
            self._runner.release, taken.handoff, taken.partition, reason, detail
        )

    def _on_fenced(self, detail: str) -> None:
        self._loop.call_soon_threadsafe(self._end, Ending.FENCED, detail)

    def _on_broken(self, detail: str) -> None:
        # A worker that heartbeats and takes nothing looks alive: this life ends, another begins.
        self._loop.call_soon_threadsafe(self._end, Ending.LEASE, detail)

    # In the heartbeats' thread.

    def _on_lease_lost(self, attempts: Sequence[Attempt], everything: bool) -> None:
        for attempt in attempts:  # at once, for effects that are about to begin
            attempt.stopped = attempt.stopped or StopReason.LEASE
        self._loop.call_soon_threadsafe(self._stop_all, attempts, StopReason.LEASE)
        if everything:
            self._loop.call_soon_threadsafe(
                self._end, Ending.LEASE, "heartbeats paused longer than the lease"
            )

    # In the thread of the answers.

    def _on_answer(self, answer: Answer, offset: int) -> None:
        self._loop.call_soon_threadsafe(self._answered, answer, offset)

    # On the loop.

    def _started(
        self, attempt: Attempt, receipt: Receipt | None, error: DeliveryFailed | None
    ) -> None:
        handoff: Handoff = attempt.handoff
        self._start_told.set()
        if receipt is None:
            # Whether it is in the log is open; a release is accepted only if it is not.
            _LOG.warning("start of %s not acknowledged: %s", attempt.id, error)
            self._holding.remove(attempt)
            self._counts.released += 1
            self._runner.release(handoff, attempt.partition, "start_not_acknowledged")
            return
        self._anchor(receipt)
        if receipt.at_ms >= handoff.start_by_ms:
            self._counts.late += 1
            self._holding.remove(attempt)
            return
        self._counts.started += 1
        self._runner.start(attempt)

    def _answered(self, answer: Answer, offset: int = -1) -> None:
        if self._runner.answer(answer, offset):
            return
        held = self._holding.get((answer.run_id, answer.step, answer.epoch))
        if held is not None and answer.reason in NOT_KEPT:
            _LOG.warning("%s of %s refused: %s", answer.kind, held.id, answer.detail)
            if answer.kind != StepProgressed.__name__:
                held.not_kept = not_kept(answer)
            return
        refused_start = answer.answer is AnswerType.REFUSED and answer.kind == StepStarted.__name__
        reason = StopReason.SUPERSEDED if refused_start else _STOPS.get(answer.answer)
        if reason is None:
            return
        self._stop_all(
            [held] if held else [] if answer.step else self._holding.of_run(answer.run_id), reason
        )

    def _stop_all(self, attempts: Sequence[Attempt], reason: StopReason) -> None:
        for attempt in attempts:
            self._counts.stopped += 1
            self._runner.stop(attempt, reason)

    def _end(self, ending: Ending, detail: str) -> None:
        if not self.ended.done():
            self.detail = detail
            self._stop_all(self._holding.all(), StopReason(ending.value))
            self.ended.set_result(ending)

    def _anchor(self, receipt: Receipt) -> None:
        """The broker's clock, as of the newest acknowledgement."""
        self._append_s = self._clocks.lease_s()
        self._append_ms = receipt.at_ms

    def _append_time_ms(self) -> int:
        """A lower bound of the append time that a record sent now would get."""
        return self._append_ms + int((self._clocks.lease_s() - self._append_s) * 1_000)
