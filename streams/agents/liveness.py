"""Watches the attempts of an engine's partitions: the agent behind `on-<prefix>.heartbeats`.

One service per engine process makes a monitor for each partition and drives them all:

* each 250 ms a canary to every watched partition of the heartbeats;
* as often, and at once after a hello, it asks the monitors, fetches the ends of the logs where
  something is due, and has the verdicts appended once those have been read;
* each second the marks of the queues in which a handoff waits longer than a bound.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Final

import structlog
from aiokafka.errors import KafkaError

from dalsegno.streams.agents.liveness_broker import KafkaLivenessBroker, LivenessBroker
from dalsegno.streams.agents.liveness_watch import PartitionWatch
from dalsegno.streams.core.liveness import (
    CANARY_INTERVAL_MS,
    FixedDetector,
    HistogramDetector,
    LivenessSettings,
    Monitor,
)
from dalsegno.streams.core.liveness.kinds import DetectorFactory
from dalsegno.streams.engine.monitor import MonitorHost
from dalsegno.streams.engine.settings import EngineSettings

log = structlog.get_logger(__name__)

CANARY_S: Final = CANARY_INTERVAL_MS / 1_000
MARKS_S: Final = 1.0
RETRY_S: Final = 1.0
_DETECTORS: Final[dict[str, DetectorFactory]] = {
    "learned": HistogramDetector,
    "fixed": FixedDetector,
}


class LivenessService:
    """The engine's `MonitorFactory`: call it with a partition. Ends with its last monitor."""

    def __init__(
        self,
        settings: EngineSettings,
        *,
        policy: LivenessSettings | None = None,
        connect: Callable[[EngineSettings], LivenessBroker] = KafkaLivenessBroker,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._policy = policy or LivenessSettings()
        self._new_detector = _DETECTORS[settings.stall_detector]
        self._connect = connect
        self._clock = clock
        self._watches: dict[int, PartitionWatch] = {}
        self._hurry = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    def __call__(self, host: MonitorHost) -> PartitionWatch:
        """The monitor of a partition that was restored, before its first batch."""
        monitor = Monitor(
            host.number,
            name=self._settings.owner,
            settings=self._policy,
            new_detector=self._new_detector,
        )
        watch = PartitionWatch(
            host, monitor, clock=self._clock, hurry=self._hurry.set, closed=self._forget
        )
        self._watches[host.number] = watch
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
            self._running.add_done_callback(_ended)
        return watch

    def _forget(self, watch: PartitionWatch) -> None:
        if self._watches.get(watch.number) is watch:
            del self._watches[watch.number]
        if not self._watches and self._running is not None:
            self._running.cancel()
            self._running = None

    async def _run(self) -> None:
        broker = self._connect(self._settings)
        try:
            await _until_it_works(broker.start)
            async with asyncio.TaskGroup() as loops:
                loops.create_task(_each(CANARY_S, lambda: self.send_canaries(broker)))
                loops.create_task(_each(CANARY_S, lambda: self.judge(broker), self._hurry))
                loops.create_task(_each(MARKS_S, lambda: self.read_marks(broker)))
        finally:
            await broker.close()

    async def send_canaries(self, broker: LivenessBroker) -> None:
        """One canary to each watched partition."""
        now_ms = time.time_ns() // 1_000_000  # information only: no verdict rests on it
        for watch in list(self._watches.values()):
            await broker.canary(watch.next_canary(self._settings.owner, now_ms))

    async def judge(self, broker: LivenessBroker) -> None:
        """Ask every monitor, and fetch the ends of the logs for those that have something due."""
        asked = {watch.number: watch for watch in list(self._watches.values()) if watch.ask()}
        if not asked:
            return
        for number, ends in (await broker.ends(asked)).items():
            asked[number].ends(ends)

    async def read_marks(self, broker: LivenessBroker) -> None:
        """Read the marks of queues whose handoffs wait, all partitions of a queue at once."""
        wanted: dict[str, set[int]] = {}
        for watch in list(self._watches.values()):
            for queue in watch.wanted_marks():
                wanted.setdefault(queue, set()).add(watch.number)
        for queue, partitions in wanted.items():
            for mark in await broker.marks(queue, partitions):
                watch_of_mark = self._watches.get(mark.partition)
                if watch_of_mark is not None:
                    watch_of_mark.mark(mark)


def _ended(running: asyncio.Task[None]) -> None:
    if not running.cancelled() and running.exception() is not None:
        log.error("liveness service ended", error=repr(running.exception()))


async def _each(
    interval_s: float, work: Callable[[], Awaitable[None]], hurry: asyncio.Event | None = None
) -> None:
    """Do the work for ever, each interval or when hurried."""
    wake = hurry or asyncio.Event()
    while True:
        await _attempted(work)
        # Not `wait_for`: in Python 3.11 it swallows a cancellation that comes with the event.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(interval_s):
                await wake.wait()
        wake.clear()


async def _until_it_works(work: Callable[[], Awaitable[None]]) -> None:
    while True:
        if await _attempted(work):
            return
        await asyncio.sleep(RETRY_S)


async def _attempted(work: Callable[[], Awaitable[None]]) -> bool:
    """Whether it went well. A broker that is away is waited for by trying again."""
    try:
        await work()
    except (KafkaError, TimeoutError, OSError) as error:
        log.warning("liveness waits for the broker", error=repr(error))
        return False
    except Exception:
        # The boundary of the service's loops: one bad round must not end all watching.
        log.exception("a round of the liveness service failed")
        return False
    return True
