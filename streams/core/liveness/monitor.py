"""The monitor of one partition: verdicts on attempts from heartbeats, hellos and marks.

Rules:

1. Time is the broker's append time. Silence is measured on the partition clock, `start_by` on the
   log time of the events. No clock of this or any other machine decides anything.
2. Nothing is said before the monitor has read to the end of both topics, as asked for after the
   moment that it judges (P8).
3. `silent`: no sign of life for longer than the kind of step's dead threshold.
   `stuck`: alive, and no progress for longer than the type usually needs. It puts the finding on
   record; only the step's own timeout, which runs in the fold, ends the attempt.
   `replaced`: a newer incarnation of its worker said hello.
   `lost`: a handoff was taken and not started, and either the incarnation that took it is gone,
   or its start limit has passed and it was taken in time to be started.
4. Each verdict on an attempt is said once, and again after a growing bound while the attempt is in
   flight. `replaced` and `lost`, which rest on more than silence, are said again at the next
   question if they were not appended, or if the fold has passed them and the attempt stands.
5. Every attempt in flight is watched, whatever its plan declares.
"""

from __future__ import annotations

import msgspec

from dalsegno.schemas.control import StallSuspected, Verdict
from dalsegno.schemas.liveness import Canary, Heartbeat, Hello, Mark
from dalsegno.streams.core.attempt import Attempt
from dalsegno.streams.core.liveness.clock import PartitionClock
from dalsegno.streams.core.liveness.detector import (
    DEAD_INTERVALS_MAX,
    DEAD_MS_MAX,
    HistogramDetector,
)
from dalsegno.streams.core.liveness.findings import Finding, Findings
from dalsegno.streams.core.liveness.handoffs import Handoffs
from dalsegno.streams.core.liveness.kinds import DetectorFactory, Kinds
from dalsegno.streams.core.liveness.settings import LivenessSettings
from dalsegno.streams.core.liveness.silence import Silence
from dalsegno.streams.core.liveness.watches import Key, Watches
from dalsegno.streams.core.liveness.workers import WorkerClock, Workers

_NOT_STARTED = "taken, and not started before its start limit"


class Reading(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How far both topics were read, and where they ended when the broker was asked.

    Offsets are exclusive. The ends were asked for after `Monitor.ask`. `log_ms` is the log time of
    the events (Unix ms).
    """

    events_offset: int
    events_end: int
    heartbeats_offset: int
    heartbeats_end: int
    log_ms: int

    @property
    def at_end(self) -> bool:
        """Whether everything was read that was there when the ends were asked for."""
        return (
            self.events_offset >= self.events_end and self.heartbeats_offset >= self.heartbeats_end
        )


class Monitor:
    """Judges the attempts of one partition. Fed in log order, per topic, from one thread."""

    def __init__(
        self,
        partition: int,
        *,
        name: str = "",
        settings: LivenessSettings | None = None,
        new_detector: DetectorFactory = HistogramDetector,
    ) -> None:
        self.partition = partition
        self.name = name
        self.settings = settings or LivenessSettings()
        self.echo = -1
        """Number of this monitor's last canary that it read back, or -1."""
        self.strays = 0
        """Heartbeats for attempts that are not, or no longer, in flight."""
        self._clock = PartitionClock(self.settings.clock_cap_ms)
        self._kinds = Kinds(self.settings.kinds_max, new_detector)
        self._workers = Workers(self.settings.workers_max)
        self._watches = Watches()
        self._silence = Silence(self._watches, self.settings)
        self._handoffs = Handoffs(self.settings.start_margin_ms)
        self._findings = Findings(self.settings)
        self._log_ms = 0
        self._asked_ms: int | None = None

    # What is read.

    def attempt(self, key: Key, attempt: Attempt | None, *, finished: bool = False) -> None:
        """Take the change of an attempt in flight; None when the step has none any more.

        `finished`: the attempt before completed, so its duration and last silence are worth
        learning.
        """
        slot = self._watches.find(key)
        if slot is not None:
            if attempt is not None and attempt.running and self._same(slot, attempt):
                return
            if finished:
                self._silence.finished(slot, self._clock.now_ms)
            self._watches.remove(key)
            self._findings.drop(key)  # it had started, so no handoff of it waits
        else:
            self._leave(key, attempt)
        if attempt is None:
            return
        if attempt.running:
            self._start(key, attempt)
        elif attempt.sequence is not None:
            self._handoffs.put(key, attempt)
            if self._handoffs.orphaned(attempt):
                self._found_lost(key, attempt, "taken by an incarnation that is gone")

    def heartbeat(self, record: Heartbeat, at_ms: int) -> None:
        """Take a heartbeat appended at `at_ms`: of a worker for all it holds, or of one step."""
        now_ms = self._advance(at_ms)
        worker, incarnation = record.worker, record.incarnation
        self._workers.seen(worker, record.sent_at_ms, at_ms)
        find, heard = self._watches.find, self._silence.heard
        epochs, processes = self._watches.epoch, self._watches.process
        for held in record.held:
            slot = find((held.run_id, held.step))
            if slot is None or held.epoch != epochs[slot]:
                self.strays += 1
                continue
            # Where no worker is named, any may speak for the attempt.
            process = processes[slot]
            if process is not None and (process.name, process.incarnation) != (worker, incarnation):
                self.strays += 1
                continue
            heard(slot, held.progress, now_ms)

    def hello(self, record: Hello, offset: int, at_ms: int) -> None:
        """Take a hello at `offset`, appended at `at_ms`: a newer incarnation replaces the earlier.

        Every attempt that an earlier one runs, and every handoff that its marks show it took and
        never started, is found at once; after one worker lease if it came from another host.
        """
        now_ms = self._advance(at_ms)
        self._workers.seen(record.worker, record.sent_at_ms, at_ms)
        incarnation = record.incarnation if record.incarnation >= 0 else offset
        for mark in record.marks:
            self.mark(mark)
        if incarnation <= self._workers.incarnation(record.worker):
            return
        moved = self._workers.hello(record.worker, incarnation, record.host)
        wait_ms = self.settings.lease_ms if moved else 0
        for slot in self._watches:
            process = self._watches.process[slot]
            if process is not None and process.name == record.worker:
                self._found_replaced(slot, incarnation, now_ms + wait_ms)
        for key, attempt in self._handoffs.restarted(record.worker, incarnation):
            said = f"taken by an incarnation of {record.worker} before {incarnation}"
            self._found_lost(key, attempt, said, wait_ms=wait_ms)

    def canary(self, record: Canary, at_ms: int) -> None:
        """Take a canary appended at `at_ms`, of this monitor or an earlier owner's."""
        self._advance(at_ms)
        if record.monitor == self.name:
            self.echo = max(self.echo, record.number)

    def mark(self, mark: Mark) -> None:
        """Take how far a queue's group has taken handoffs; only of this partition."""
        if mark.partition == self.partition:
            # The later of both logs' times: a mark is at most as new as that, so never too early.
            self._handoffs.mark(mark, max(self._log_ms, self._clock.at_ms or 0))

    # What follows from it.

    def ask(self, log_ms: int, events_offset: int = 0) -> bool:
        """Note this moment as the one to judge; return whether anything would be said about it.

        If so, the caller asks the broker where both topics end, reads so far, and hands over the
        `Reading`. `log_ms`: log time of the events (Unix ms); `events_offset`: the fold has applied
        the events below it, and the monitor knows what that changed.
        """
        self._log_ms = max(self._log_ms, log_ms)
        self._asked_ms = self._clock.now_ms
        overdue_ms = self._log_ms - self.settings.start_margin_ms
        for key, attempt in self._handoffs.overdue(overdue_ms):
            self._found_lost(key, attempt, _NOT_STARTED)
        found = self._findings.ask(self._asked_ms, events_offset)
        return self._silence.any_due(self._asked_ms) or found

    def caught_up(self, reading: Reading) -> list[StallSuspected]:
        """Say what can be said of the moment asked about: nothing before the end of both topics."""
        asked_ms, self._asked_ms = self._asked_ms, None
        self._log_ms = max(self._log_ms, reading.log_ms)
        if asked_ms is None or not reading.at_end:
            return []
        said = [self._say(finding, reading) for finding in self._findings.due(asked_ms)]
        said.extend(self._say(finding, reading) for finding in self._silence.due(asked_ms))
        return said

    def appended(self, said: StallSuspected, offset: int) -> None:
        """A verdict stands in the events at `offset`.

        Once the fold has passed it and the attempt still stands, it was dropped: by a report that
        came after what the monitor had read, from the very incarnation that is gone.
        """
        self._findings.appended((said.run_id, said.step), said.epoch, said.verdict, offset)

    def not_appended(self, said: StallSuspected) -> None:
        """A verdict is perhaps not in the events. One that rests on silence keeps its own bound."""
        self._findings.not_appended(
            Finding(
                (said.run_id, said.step),
                said.epoch,
                said.verdict,
                elapsed_ms=said.elapsed_ms,
                threshold_ms=said.threshold_ms,
                evidence=said.evidence,
            )
        )

    def queues_to_read(self, log_ms: int) -> set[str]:
        """Queues whose group's marks are wanted at log time `log_ms` (Unix ms)."""
        self._log_ms = max(self._log_ms, log_ms)
        return self._handoffs.unmarked(log_ms, self.settings.mark_age_ms)

    # What can be asked.

    @property
    def running(self) -> int:
        """Attempts that run."""
        return len(self._watches)

    @property
    def dispatched(self) -> int:
        """Handoffs that were sent and not started."""
        return len(self._handoffs)

    @property
    def readback_ms(self) -> int:
        """How far back (ms) a monitor that takes over reads heartbeats: the largest threshold."""
        intervals = (self._watches.kind[slot].interval_ms for slot in self._watches)
        return max(DEAD_MS_MAX, DEAD_INTERVALS_MAX * max(intervals, default=0))

    @property
    def bytes_per_step(self) -> int:
        """What one running attempt takes in the columns, beside its index entry."""
        return self._watches.bytes_per_slot

    def suspects(self) -> int:
        """How many running attempts have been silent beyond the lower threshold."""
        now_ms, watches = self._clock.now_ms, self._watches
        return sum(now_ms - watches.heard_ms[s] > watches.kind[s].suspect_ms() for s in watches)

    def worker_clocks(self) -> list[WorkerClock]:
        """How far the producers' clocks are off, and which stand still."""
        return self._workers.clocks()

    # Inside.

    def _advance(self, at_ms: int) -> int:
        if self._clock.at_ms is None:
            self._silence.anchor(at_ms)
        return self._clock.advance(at_ms)

    def _start(self, key: Key, attempt: Attempt) -> None:
        process = None
        if attempt.worker:
            process = self._workers.process(attempt.worker, attempt.incarnation)
        # Before the first record the clock has no append time yet: `anchor` turns this into one.
        begun = self._clock.at_ms is not None
        since_ms = self._clock.latest_at(attempt.since_ms) if begun else attempt.since_ms
        slot = self._watches.add(key, attempt.epoch, self._kinds.of(attempt), process, since_ms)
        if begun:
            self._silence.begin(slot)
        if process is not None:
            newest = self._workers.incarnation(process.name)
            self._found_replaced(slot, newest, self._clock.now_ms)

    def _same(self, slot: int, attempt: Attempt) -> bool:
        """Whether the fold only repeats what it said; an observed step's retry keeps epoch 0."""
        process = self._watches.process[slot]
        same_process = ("", 0) if process is None else (process.name, process.incarnation)
        return (
            attempt.epoch != 0
            and attempt.epoch == self._watches.epoch[slot]
            and (attempt.worker, attempt.incarnation if attempt.worker else 0) == same_process
        )

    def _leave(self, key: Key, successor: Attempt | None) -> None:
        """The attempt before is over. One that was taken and never started is lost even so."""
        left = self._handoffs.pop(key)
        if left is None:
            self._findings.drop(key)
            return
        handoff, in_time = left
        expired = (
            successor is not None
            and successor.epoch > handoff.epoch
            and self._log_ms >= handoff.start_by_ms
            and in_time
        )
        if expired:
            finding = self._lost(key, handoff, _NOT_STARTED)
            self._findings.add_once(finding)
        self._findings.drop(key)

    def _found_lost(self, key: Key, attempt: Attempt, said: str, *, wait_ms: int = 0) -> None:
        self._findings.add(self._lost(key, attempt, said, wait_ms=wait_ms))

    def _lost(self, key: Key, attempt: Attempt, said: str, *, wait_ms: int = 0) -> Finding:
        return Finding(
            key,
            attempt.epoch,
            Verdict.LOST,
            next_ms=self._clock.now_ms + wait_ms if wait_ms else 0,
            elapsed_ms=max(0, self._log_ms - attempt.since_ms),
            threshold_ms=max(0, attempt.start_by_ms - attempt.since_ms),
            evidence=said,
        )

    def _found_replaced(self, slot: int, newest: int, next_ms: int) -> None:
        process, key = self._watches.process[slot], self._watches.keys[slot]
        if process is None or key is None or process.incarnation >= newest:
            return
        self._findings.add(
            Finding(
                key,
                self._watches.epoch[slot],
                Verdict.REPLACED,
                worker=process.name,
                incarnation=process.incarnation,
                next_ms=next_ms,
                elapsed_ms=self._clock.now_ms - self._watches.heard_ms[slot],
                evidence=f"incarnation {newest} said hello",
            )
        )

    def _say(self, finding: Finding, reading: Reading) -> StallSuspected:
        run_id, step = finding.key
        return StallSuspected(
            source=self.name,
            run_id=run_id,
            step=step,
            epoch=finding.epoch,
            verdict=finding.verdict,
            events_offset=reading.events_offset,
            heartbeats_at_ms=self._clock.at_ms or 0,
            elapsed_ms=finding.elapsed_ms,
            threshold_ms=finding.threshold_ms,
            worker=finding.worker,
            incarnation=max(0, finding.incarnation),
            evidence=finding.evidence,
        )
