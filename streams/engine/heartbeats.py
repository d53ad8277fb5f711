"""Feeds a partition's monitor: its heartbeats, and the attempts of the fold."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import structlog

from dalsegno.streams.engine.batch import Batch, Wanted
from dalsegno.streams.engine.fold import AttemptChange
from dalsegno.streams.engine.monitor import MonitorFigures, PartitionMonitor, RawRecord

if TYPE_CHECKING:
    from dalsegno.streams.engine.context import EngineContext
    from dalsegno.streams.engine.monitor import MonitorHost

log = structlog.get_logger(__name__)


class HeartbeatFeed:
    """Reads one heartbeats partition for a monitor, beside the events, at its own pace.

    Heartbeats are never history: after a failure of the monitor the feed ends, the events go on.
    """

    def __init__(self, context: EngineContext, monitor: PartitionMonitor, position: int) -> None:
        self._context = context
        self._monitor = monitor
        self._position = position
        self._busy = False
        self._ticket = 0
        self.failed = False

    @classmethod
    async def start(
        cls, context: EngineContext, host: MonitorHost, in_flight: Sequence[AttemptChange]
    ) -> HeartbeatFeed:
        """Make the partition's monitor, tell it what is in flight, and find where to read from."""
        assert context.monitors is not None
        monitor = context.monitors(host)
        monitor.attempts(in_flight)
        feed = cls(context, monitor, 0)
        await feed.look_back(host)
        return feed

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
        self._guard(lambda: self._monitor.attempts(changes, completed))

    def figures(self) -> MonitorFigures | None:
        """The present state of the monitor, or None of one that failed."""
        return None if self.failed else self._monitor.figures()

    def _guard(self, call: object) -> None:
        if self.failed:
            return
        try:
            call()  # type: ignore[operator]
        except Exception:
            self.failed = True
            self._context.metrics.monitor_failed()
            log.exception("monitor failed; its partition is watched again after the next restore")

    def give_up(self, error: Exception) -> None:
        """Read no further: at a record that the client cannot take apart it would stay for ever."""
        if not self.failed:
            self.failed = True
            self._context.metrics.monitor_failed()
            log.error("heartbeats unreadable; watched again after a restart", error=repr(error))

    async def close(self) -> None:
        """Stop the monitor."""
        await self._monitor.close()
