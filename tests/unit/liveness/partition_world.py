"""A partition as a monitor sees it: append time moves by hand, canaries come as they should."""

from __future__ import annotations

from dalsegno.schemas.control import StallSuspected, Verdict
from dalsegno.schemas.liveness import Canary, Heartbeat, Held, Hello, Mark
from dalsegno.streams.core.attempt import Attempt
from dalsegno.streams.core.liveness import (
    CANARY_INTERVAL_MS,
    LivenessSettings,
    Monitor,
    Reading,
)
from dalsegno.streams.core.liveness.detector import HistogramDetector
from dalsegno.streams.core.liveness.kinds import DetectorFactory
from dalsegno.streams.core.sequence import Sequence

START_MS = 1_700_000_000_000
PARTITION = 3


class World:
    """Append time, both logs' ends, and one monitor that reads them."""

    def __init__(
        self,
        settings: LivenessSettings | None = None,
        new_detector: DetectorFactory = HistogramDetector,
    ) -> None:
        self.at_ms = START_MS
        self.monitor = Monitor(
            PARTITION, name="engine-1", settings=settings, new_detector=new_detector
        )
        self.said: list[StallSuspected] = []
        self.events = 0
        self.heartbeats = 0
        self._canaries = 0

    # Events of the partition, as the fold hands them on.

    def dispatch(
        self, run: str, *, step: str = "s", epoch: int = 1, offset: int = 10, **more: object
    ) -> Attempt:
        attempt = self._attempt(run, step, epoch, offset=offset, **more)
        self.tell((run, step), attempt)
        return attempt

    def start(
        self, run: str, *, step: str = "s", epoch: int = 1, worker: str = "w", **more: object
    ) -> Attempt:
        fields: dict[str, object] = {"running": True, "worker": worker, "incarnation": 7, **more}
        attempt = self._attempt(run, step, epoch, **fields)
        self.tell((run, step), attempt)
        return attempt

    def end(self, run: str, step: str = "s", *, finished: bool = True) -> None:
        self.tell((run, step), None, finished=finished)

    def tell(
        self, key: tuple[str, str], attempt: Attempt | None, *, finished: bool = False
    ) -> None:
        self.events += 1
        self.monitor.attempt(key, attempt, finished=finished)

    def _attempt(self, run: str, step: str, epoch: int, **more: object) -> Attempt:
        offset = more.pop("offset", None)
        fields: dict[str, object] = {
            "step_type": f"flow/{step}",
            "running": False,
            "queue": "default",
            "since_ms": self.at_ms,
            "heartbeat_ms": 1_000,
            "timeout_ms": 0,
            "start_by_ms": self.at_ms + 30_000,
            "sequence": Sequence(offset, 0, 1) if isinstance(offset, int) else None,
            **more,
        }
        return Attempt(run_id=run, step=step, epoch=epoch, **fields)  # type: ignore[arg-type]

    # Records of the heartbeats partition.

    def beat(
        self,
        *runs: str,
        step: str = "s",
        epoch: int = 1,
        progress: int = 0,
        worker: str = "w",
        incarnation: int = 7,
        sent_at_ms: int = 0,
    ) -> None:
        self.heartbeats += 1
        record = Heartbeat(
            partition=PARTITION,
            worker=worker,
            incarnation=incarnation,
            held=tuple(Held(run_id=run, step=step, epoch=epoch, progress=progress) for run in runs),
            sent_at_ms=sent_at_ms,
        )
        self.monitor.heartbeat(record, self.at_ms)

    def hello(
        self, incarnation: int, *marks: Mark, worker: str = "w", host: str = "h", offset: int = 0
    ) -> None:
        self.heartbeats += 1
        record = Hello(
            partition=PARTITION, worker=worker, incarnation=incarnation, host=host, marks=marks
        )
        self.monitor.hello(record, offset, self.at_ms)

    def mark(
        self, offset: int, *, worker: str = "w", incarnation: int = 7, partition: int = PARTITION
    ) -> Mark:
        return Mark(
            queue="default",
            partition=partition,
            offset=offset,
            index=0,
            worker=worker,
            incarnation=incarnation,
        )

    def canary(self) -> None:
        self.heartbeats += 1
        self._canaries += 1
        record = Canary(partition=PARTITION, monitor="engine-1", number=self._canaries)
        self.monitor.canary(record, self.at_ms)

    # Time.

    def pass_ms(self, ms: int, *beating: str, every_ms: int = 1_000, **beat: object) -> None:
        """Time passes with canaries; `beating` runs beat; the monitor reads to the end."""
        done = 0
        while done < ms:
            step_ms = min(CANARY_INTERVAL_MS, ms - done)
            done += step_ms
            self.at_ms += step_ms
            self.canary()
            if beating and done % every_ms < step_ms:
                self.beat(*beating, **beat)  # type: ignore[arg-type]
            self.judge()

    def judge(self, *, events_behind: int = 0, heartbeats_behind: int = 0) -> list[StallSuspected]:
        """Ask about this moment, and read up to so far before the ends of the logs."""
        self.monitor.ask(self.at_ms, self.events - events_behind)
        said = self.monitor.caught_up(self.reading(events_behind, heartbeats_behind))
        self.said.extend(said)
        return said

    def reading(self, events_behind: int = 0, heartbeats_behind: int = 0) -> Reading:
        return Reading(
            events_offset=self.events - events_behind,
            events_end=self.events,
            heartbeats_offset=self.heartbeats - heartbeats_behind,
            heartbeats_end=self.heartbeats,
            log_ms=self.at_ms,
        )

    def verdicts(self) -> list[tuple[str, str, int, Verdict]]:
        return [(v.run_id, v.step, v.epoch, v.verdict) for v in self.said]
