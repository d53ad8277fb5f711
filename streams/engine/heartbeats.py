"""Feeds a partition's monitor: its heartbeats, and the attempts of the fold."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import structlog

from dalsegno.streams.engine.batch import Batch, Wanted
from dalsegno.streams.engine.fold import AttemptChange
from dalsegno.streams.engine.monitor import PartitionMonitor, RawRecord

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
        self.failed = False

    @classmethod
    async def start(cls, context: EngineContext, host: MonitorHost) -> HeartbeatFeed:
        """Make the partition's monitor and find where to read back from."""
        assert context.monitors is not None
        monitor = context.monitors(host)
        since_ms = time.time_ns() // 1_000_000 - monitor.look_back_ms
        topic = context.settings.topics.heartbeats
        position = await context.joined().offset_at(topic, host.number, since_ms)
        return cls(context, monitor, position)

    def wanted(self) -> Wanted | None:
        """The heartbeats to read next."""
        return None if self._busy or self.failed else Wanted(self._position, 0)

    def take(self) -> bool:
        """Mark it busy with the batch that it asked for."""
        if self._busy or self.failed:
            return False
        self._busy = True
        return True

    def moved_to(self, position: int) -> None:
        """What we wanted is no longer there (short retention): heartbeats may be skipped."""
        self._position = position

    def process(self, batch: Batch) -> None:
        """Hand the records to the monitor."""
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

    def attempts(self, changes: Sequence[AttemptChange]) -> None:
        """Tell the monitor what the fold dispatched, started and ended."""
        self._guard(lambda: self._monitor.attempts(changes))

    def _guard(self, call: object) -> None:
        if self.failed:
            return
        try:
            call()  # type: ignore[operator]
        except Exception:
            self.failed = True
            self._context.metrics.monitor_failed()
            log.exception("monitor failed; its partition is watched again after the next restore")

    async def close(self) -> None:
        """Stop the monitor."""
        await self._monitor.close()
