"""The monitor of one partition, between its engine and the pure core."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Sequence

import structlog

from dalsegno.schemas import codec
from dalsegno.schemas.control import StallSuspected
from dalsegno.schemas.errors import DecodeError
from dalsegno.schemas.liveness import Canary, Heartbeat, Hello, Mark
from dalsegno.streams.agents.liveness_broker import Ends
from dalsegno.streams.core.liveness import Monitor, Reading
from dalsegno.streams.engine.errors import EngineError
from dalsegno.streams.engine.fold import AttemptChange
from dalsegno.streams.engine.monitor import MonitorFigures, MonitorHost, RawRecord

log = structlog.get_logger(__name__)


class PartitionWatch:
    """Feeds a `Monitor`, asks it, and appends what it says. Runs on the event loop.

    A question is asked, then the ends of both logs are fetched, then both are read so far, and only
    then is the answer taken: at most one question is open at a time. `clock`: monotonic seconds,
    for the age of the canary alone.
    """

    def __init__(
        self,
        host: MonitorHost,
        monitor: Monitor,
        *,
        clock: Callable[[], float],
        hurry: Callable[[], None],
        closed: Callable[[PartitionWatch], None],
    ) -> None:
        self.number = host.number
        self._host = host
        self._monitor = monitor
        self._clock = clock
        self._hurry = hurry
        self._closed = closed
        self._heartbeats_offset = 0
        self._ends: Ends | None = None
        self._saying: asyncio.Task[None] | None = None
        self._canaries = 0
        self._echo_s = clock()
        self._said: Counter[str] = Counter()
        self._unread = 0

    # What the engine tells.

    @property
    def look_back_ms(self) -> int:
        """How much of the heartbeats to read back at the start."""
        return self._monitor.readback_ms

    def attempts(
        self, changes: Sequence[AttemptChange], completed: Collection[tuple[str, str]] = ()
    ) -> None:
        """Attempts that were dispatched, started or ended; `completed` says which ended well."""
        for key, attempt in changes:
            self._monitor.attempt(key, attempt, finished=key in completed)
        self.answer()

    def heartbeats(self, records: Sequence[RawRecord], _end_offset: int) -> None:
        """Heartbeat records, in order. What cannot be read costs only itself."""
        for raw in records:
            self._heartbeats_offset = raw.offset + 1
            try:
                self._take(raw)
            except DecodeError as error:
                self._unread += 1
                log.warning("heartbeat not read", partition=self.number, error=str(error))
        self.answer()

    def _take(self, raw: RawRecord) -> None:
        record = codec.decode(raw.value)
        if not isinstance(record, Heartbeat | Hello | Canary) or record.partition != self.number:
            self._unread += 1
            return
        match record:
            case Heartbeat():
                self._monitor.heartbeat(record, raw.at_ms)
            case Hello():
                self._monitor.hello(record, raw.offset, raw.at_ms)
                self._hurry()
            case Canary():
                echo = self._monitor.echo
                self._monitor.canary(record, raw.at_ms)
                if self._monitor.echo != echo:
                    self._echo_s = self._clock()

    async def close(self) -> None:
        """Append nothing more."""
        self._closed(self)
        if self._saying is not None:
            self._saying.cancel()
            await asyncio.gather(self._saying, return_exceptions=True)

    # What the service does with it.

    def next_canary(self, monitor_name: str, sent_at_ms: int) -> Canary:
        """The next canary of this partition."""
        self._canaries += 1
        return Canary(
            partition=self.number,
            monitor=monitor_name,
            number=self._canaries,
            sent_at_ms=sent_at_ms,
        )

    def ask(self) -> bool:
        """Whether the ends of the logs are wanted, for a verdict that may be due."""
        if self._ends is not None or self._saying is not None:
            return False
        return self._monitor.ask(self._host.log_ms, self._host.events_offset)

    def ends(self, ends: Ends) -> None:
        """Where the logs ended after `ask`; the answer comes once we have read so far."""
        self._ends = ends
        self.answer()

    def wanted_marks(self) -> set[str]:
        """Queues whose marks are to be read."""
        return self._monitor.queues_to_read(self._host.log_ms)

    def mark(self, mark: Mark) -> None:
        """A mark was read."""
        self._monitor.mark(mark)

    def answer(self) -> None:
        """Say what is due, if everything before the ends has been read."""
        if self._ends is None or self._saying is not None:
            return
        reading = Reading(
            events_offset=self._host.events_offset,
            events_end=self._ends.events,
            heartbeats_offset=self._heartbeats_offset,
            heartbeats_end=self._ends.heartbeats,
            log_ms=self._host.log_ms,
        )
        if not reading.at_end:
            return
        self._ends = None
        verdicts = self._monitor.caught_up(reading)
        if verdicts:
            self._saying = asyncio.create_task(self._append(verdicts))
            self._saying.add_done_callback(self._appended)

    async def _append(self, verdicts: Sequence[StallSuspected]) -> None:
        """All of a question together: they end up in the log side by side."""
        try:
            offsets = await self._host.append_verdicts(verdicts)
        except EngineError as error:
            # Perhaps they are there all the same; the fold takes each once.
            log.warning(
                "verdicts not appended",
                partition=self.number,
                verdicts=len(verdicts),
                error=str(error),
            )
            for verdict in verdicts:
                self._monitor.not_appended(verdict)
            return
        for offset, verdict in zip(offsets, verdicts, strict=True):
            self._monitor.appended(verdict, offset)
            self._note(verdict)

    def _note(self, verdict: StallSuspected) -> None:
        self._said[verdict.verdict] += 1
        log.info(
            "verdict",
            partition=self.number,
            run_id=verdict.run_id,
            step=verdict.step,
            epoch=verdict.epoch,
            verdict=verdict.verdict,
            elapsed_ms=verdict.elapsed_ms,
        )

    def _appended(self, task: asyncio.Task[None]) -> None:
        self._saying = None
        if not task.cancelled() and task.exception() is not None:
            log.error("verdicts not appended", partition=self.number, error=repr(task.exception()))

    # What can be seen of it.

    def figures(self) -> MonitorFigures:
        """The present state, for metrics."""
        clocks = self._monitor.worker_clocks()
        return MonitorFigures(
            running=self._monitor.running,
            dispatched=self._monitor.dispatched,
            suspects=self._monitor.suspects(),
            canary_age_s=self._clock() - self._echo_s,
            verdicts=dict(self._said),
            strays=self._monitor.strays,
            unread=self._unread,
            producer_skew_ms_max=max((abs(c.skew_ms) for c in clocks), default=0),
            producer_clocks_frozen=sum(clock.frozen for clock in clocks),
        )
