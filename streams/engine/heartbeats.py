"""Feeds a partition's monitor: its heartbeats, and the attempts of the fold."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final

import structlog
from aiokafka.errors import KafkaError

from dalsegno.streams.core.attempt import Attempt
from dalsegno.streams.engine import metrics_catalogue as catalogue
from dalsegno.streams.engine.batch import Batch, Wanted
from dalsegno.streams.engine.fold import AttemptChange
from dalsegno.streams.engine.monitor import MonitorFigures, RawRecord

if TYPE_CHECKING:
    from dalsegno.streams.engine.context import EngineContext
    from dalsegno.streams.engine.monitor import MonitorHost

log = structlog.get_logger(__name__)


RESTARTS_MAX: Final = 5
"""Of one feed. A monitor that fails more often is off until its partition is restored."""

_PAUSE_FIRST_S: Final = 1.0
_PAUSE_MAX_S: Final = 30.0


class HeartbeatFeed:
    """Reads one heartbeats partition for a monitor, beside the events, at its own pace.

    Heartbeats are never history: a monitor that fails costs no event. It is begun anew with the
    attempts in flight, after a pause that grows, `RESTARTS_MAX` times.
    """

    def __init__(
        self, context: EngineContext, host: MonitorHost, in_flight: Sequence[AttemptChange] = ()
    ) -> None:
        assert context.monitors is not None
        self._context = context
        self._host = host
        self._monitor = context.monitors(host)
        self._in_flight: dict[tuple[str, str], Attempt] = {}
        self._note(in_flight)
        self._position = 0
        self._busy = False
        self._ticket = 0
        self._restarts = 0
        self._restarting: asyncio.Task[None] | None = None
        self.failed = False
        self._guard(lambda: self._monitor.attempts(in_flight))

    @classmethod
    async def start(
        cls, context: EngineContext, host: MonitorHost, in_flight: Sequence[AttemptChange]
    ) -> HeartbeatFeed:
        """Make the partition's monitor, tell it what is in flight, and find where to read from."""
        feed = cls(context, host, in_flight)
        try:
            await feed.look_back(host)
        except BaseException:
            await feed.close()  # nobody else has it yet
            raise
        return feed

    def _note(self, changes: Sequence[AttemptChange]) -> None:
        for key, attempt in changes:
            if attempt is None:
                self._in_flight.pop(key, None)
            else:
                self._in_flight[key] = attempt

    async def look_back(self, host: MonitorHost) -> None:
        """Read on from the largest threshold before the log time: the broker's clock, not ours."""
        since_ms = host.log_ms - self._monitor.look_back_ms
        topic = self._context.settings.topics.heartbeats
        group = self._context.joined()
        self._position = await group.offset_at(topic, host.number, since_ms)

    def wanted(self) -> Wanted | None:
        """The heartbeats to read next."""
        return None if self._busy or self.failed else Wanted(self._position, self._ticket)

    def take(self) -> bool:
        """Mark it busy with the batch that it asked for."""
        if self._busy or self.failed:
            return False
        self._busy = True
        return True

    def process(self, batch: Batch) -> None:
        """Hand the records to the monitor."""
        if batch.ticket != self._ticket:
            return
        records = [
            RawRecord(
                raw.offset,
                raw.timestamp,
                raw.key or b"",
                raw.value or b"",
                tuple((name, value or b"") for name, value in raw.headers),
            )
            for raw in batch.records
        ]
        self._position = batch.next_position
        self._busy = False
        self._guard(lambda: self._monitor.heartbeats(records, batch.end_offset))
        self._context.joined().wake()

    def dropped(self, batch: Batch) -> None:
        """Faust lost the batch: its records are read again."""
        if batch.ticket == self._ticket and self._busy:
            self._ticket += 1
            self._busy = False

    def attempts(
        self, changes: Sequence[AttemptChange], completed: Collection[tuple[str, str]]
    ) -> None:
        """Tell the monitor what the fold dispatched, started and ended, and what ended well."""
        self._note(changes)
        self._guard(lambda: self._monitor.attempts(changes, completed))

    def figures(self) -> MonitorFigures | None:
        """The present state of the monitor, or None of one that failed."""
        return None if self.failed else self._monitor.figures()

    def _guard(self, call: Callable[[], None]) -> None:
        if self.failed:
            return
        try:
            call()
        except Exception:
            # The boundary of the monitor: what raises in it costs no event.
            log.exception("monitor failed", partition=self._host.number, restarts=self._restarts)
            self._fail()

    def _fail(self) -> None:
        self.failed = True
        self._busy = False
        self._ticket += 1
        self._context.metrics.count(catalogue.MONITOR_FAILURES)
        if self._restarts >= RESTARTS_MAX:
            log.error("monitor stays off until a restart", partition=self._host.number)
            return
        pause_s = min(_PAUSE_MAX_S, _PAUSE_FIRST_S * 2**self._restarts)
        self._restarts += 1
        self._restarting = asyncio.create_task(self._restart(pause_s))

    async def _restart(self, pause_s: float) -> None:
        """A new monitor that knows what is in flight, and reads the heartbeats back."""
        await asyncio.sleep(pause_s)
        try:
            await self._begin_anew()
        except Exception:
            # The boundary of this task: nobody awaits it, and the monitor would stay off unseen.
            log.exception("monitor not begun anew", partition=self._host.number)
            self._fail()
            return
        self.failed = False
        self._context.metrics.count(catalogue.MONITOR_RESTARTS)
        self._guard(lambda: self._monitor.attempts(list(self._in_flight.items())))
        self._context.joined().wake()

    async def _begin_anew(self) -> None:
        await self._monitor.close()
        assert self._context.monitors is not None
        self._monitor = self._context.monitors(self._host)
        while True:
            try:
                await self.look_back(self._host)
            except (KafkaError, TimeoutError) as error:
                log.warning("heartbeats not found, asking again", error=repr(error))
                await asyncio.sleep(_PAUSE_FIRST_S)
            else:
                return

    def give_up(self, error: Exception) -> None:
        """Read no further: at a record that the client cannot take apart it would stay for ever."""
        if not self.failed:
            self.failed = True
            self._context.metrics.count(catalogue.MONITOR_FAILURES)
            log.error("heartbeats unreadable; watched again after a restart", error=repr(error))

    async def close(self) -> None:
        """Stop the monitor."""
        if self._restarting is not None:
            self._restarting.cancel()
            await asyncio.gather(self._restarting, return_exceptions=True)
        await self._monitor.close()
