"""An account of one run, kept beside the core from events and outputs alone.

It repeats none of the core's tables: it only remembers enough to say "this output must not exist".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from tests.simulation.body import written
from tests.simulation.flight import Flight
from tests.simulation.log import Entry
from tests.simulation.outage import Outage
from tests.simulation.plans import RunSpec
from tests.simulation.poison import POISON
from tests.simulation.promises import BrokenPromiseError, FoldRaisedError

from dalsegno.schemas.control import StallSuspected, Verdict
from dalsegno.schemas.events import (
    AttemptEvent,
    EffectConfirmed,
    EffectIntended,
    FailureType,
    RunCancelled,
    RunPaused,
    RunResumed,
    RunStarted,
    StepFailed,
    StepProgressed,
    StepReleased,
    StepStarted,
)
from dalsegno.schemas.outputs import (
    Answer,
    AnswerType,
    EffectStatus,
    Escalation,
    Handoff,
    Outcome,
    RunState,
    StepState,
    Transition,
)
from dalsegno.schemas.plan import Risk
from dalsegno.streams.core.retry import ceiling_ms

FINAL = {
    RunState.SUCCEEDED,
    RunState.FAILED,
    RunState.COMPENSATED,
    RunState.CANCELLED,
    RunState.EXPIRED,
}
RAISED = "apply raised"
# As in the world's policy: how many events may wait for a run, and how long.
EARLY_MAX = 3
EARLY_WAIT_MS = 15_000
# Deadlines in live time may count from the next tick on.
LIVE_CAP_MS = 3_000
ASKING = {StepState.ESCALATED, StepState.MISSING_INFO, StepState.AWAITING_APPROVAL}
IN_FLIGHT = {StepState.DISPATCHED, StepState.RUNNING, StepState.BACKING_OFF}
MOVING = {*IN_FLIGHT, StepState.READY}
unpack = msgspec.msgpack.decode


class Story:
    """`flies(run_id, step, epoch)`: does the core say that this attempt is running now?"""

    # What may be applied to a run that was put aside.
    quarantine_ends: frozenset[str] = frozenset({"RunCancelled", "timer:ttl", RAISED})

    def __init__(
        self, run_id: str, spec: RunSpec | None, flies: Callable[[str, str, int], bool]
    ) -> None:
        self.run_id = run_id
        self.spec = spec
        self.flies = flies
        self.started: RunStarted | None = None
        self.expires_ms = 0
        self.state: RunState | None = None
        self.paused = False
        self.flights: dict[str, dict[int, Flight]] = {}
        self.epochs: dict[str, int] = {}
        self.completed: dict[str, int] = {}
        self.own_attempts: dict[str, int] = {}
        self.failures: dict[str, int] = {}
        self.not_before: dict[str, int] = {}
        self.confirmed: dict[tuple[str, str, int], int] = {}
        self.intended: dict[tuple[str, str, int], tuple[str, int]] = {}
        self.steps: dict[str, StepState] = {}
        self.early: list[tuple[str, int]] = []
        self.note_due = False
        self.escalations = 0
        self.gated = False
        self.refused = False
        self.ended: Answer | None = None
        self.outage = Outage(self)

    def fail(self, promise: str, text: str) -> None:
        raise BrokenPromiseError(f"{promise}: run {self.run_id}: {text}")

    def on_early(self, event: Any, log_ms: int) -> None:
        """An event of the run is in the log ahead of its start."""
        if self.started is None and not isinstance(event, RunStarted):
            self.early.append((type(event).__name__, log_ms))

    def on_report(self, event: AttemptEvent, offset: int) -> None:
        """A report of an attempt is in the log; effects count whoever reports them."""
        flight = self.flights.get(event.step, {}).get(event.epoch)
        live = self.started is not None and self.state not in FINAL
        place = (event.step, getattr(event, "effect", ""), getattr(event, "occurrence", 0))
        if isinstance(event, EffectIntended) and flight is not None and live:
            self.intended.setdefault(place, (event.key, offset))
        if isinstance(event, EffectConfirmed) and live and place in self.intended:
            self.confirmed.setdefault(place, offset)

    def early_since(self) -> int:
        return self.early[0][1] if self.early else 0

    def on_dispatch(self, handoff: Handoff, offset: int, log_ms: int, live_ms: int) -> None:
        step, epoch = handoff.step, handoff.epoch
        if step in self.completed:
            self.fail("P4", f"step {step} was completed and is dispatched again as epoch {epoch}")
        if epoch <= self.epochs.get(step, 0):
            self.fail("P3", f"step {step}: epoch {epoch} does not rise above {self.epochs[step]}")
        if self.state in FINAL or self.state is None:
            self.fail("P3", f"step {step} is dispatched while the run is {self.state}")
        if self.paused:
            self.fail("P3", f"step {step} is dispatched while the run is paused")
        if log_ms < self.not_before.get(step, 0):
            self.fail("P6", f"step {step} is retried {self.not_before[step] - log_ms} ms too early")
        for older in self.flights.get(step, {}).values():
            if older.handoff.epoch == self.epochs.get(step) and older.started_live_ms is None:
                self.check_expiry(older, log_ms, live_ms)
        self.epochs[step] = epoch
        self.flights.setdefault(step, {})[epoch] = Flight(handoff, live_ms)
        self.check_inputs(handoff)
        self.check_journal(handoff, offset)

    def check_expiry(self, older: Flight, log_ms: int, live_ms: int) -> None:
        """An epoch that nobody gave back or lost expires by both clocks, not by one of them."""
        if older.given_back:
            return
        limit = older.handoff.start_by_ms - older.handoff.dispatched_at_ms
        if live_ms < older.dispatched_live_ms + limit or log_ms < older.handoff.start_by_ms:
            self.fail(
                "P3", f"step {older.handoff.step} epoch {older.handoff.epoch} expired too early"
            )

    def check_inputs(self, handoff: Handoff) -> None:
        if self.spec is None:
            return
        plan = self.spec.step(handoff.step)
        if plan.risk is not Risk.NONE:
            self.check_risk(handoff)
        for need in plan.needs:
            if not self.is_done(need):
                self.fail("P3", f"step {handoff.step} was dispatched before {need} completed")
        inputs = unpack(handoff.inputs)
        if sorted(inputs) != sorted(plan.reads):
            self.fail(
                "P5", f"step {handoff.step} reads {sorted(plan.reads)}, was given {sorted(inputs)}"
            )
        for field, value in inputs.items():
            if value != self.expected(field):
                self.fail(
                    "P5", f"step {handoff.step}: {field} is {value}, not {self.expected(field)}"
                )

    @property
    def is_known(self) -> bool:
        """Whether what it did is known here in the order in which the fold took it."""
        return True

    def check_risk(self, handoff: Handoff) -> None:
        """P7: nobody approves anything here, so no risky step may go."""
        self.fail("P7", f"risky step {handoff.step} was dispatched")

    def is_done(self, step: str) -> bool:
        """Whether what needs the step may go."""
        return step in self.completed

    def check_end_of_time(self, cause: str, expires_ms: int) -> None:
        """An event that does not touch the run's time to live has left it where it was."""
        if self.expires_ms not in {0, expires_ms}:
            self.fail("P6", f"{cause} moved the end of its time")

    def expected(self, field: str) -> Any:
        if field == "applicant":
            return self.run_id
        if field == "note":
            return "a note"
        writer = field.removesuffix("_out")
        return written(writer, self.completed[writer]) if writer in self.completed else None

    def check_journal(self, handoff: Handoff, offset: int) -> None:
        known = {(entry.effect, entry.occurrence): entry for entry in handoff.effects}
        for (step, effect, occurrence), (key, at) in self.intended.items():
            if step != handoff.step or at >= offset:
                # A timer that this very record fired went ahead of it.
                continue
            entry = known.get((effect, occurrence))
            if entry is None or entry.key != key:
                self.fail("P4", f"step {step}: the journal lost effect {effect}/{occurrence}")
                return
            confirmed = self.confirmed.get((step, effect, occurrence), offset) < offset
            if confirmed and entry.status is not EffectStatus.CONFIRMED:
                self.fail(
                    "P4", f"step {step}: effect {effect}/{occurrence} was confirmed, is forgotten"
                )

    def on_transition(self, change: Transition, entry: Entry, log_ms: int, live_ms: int) -> None:
        self.outage.on_transition(change, entry, log_ms)
        timer = change.cause.startswith("timer:")
        if self.state in FINAL and change.run_state_after is not self.state:
            self.fail("P3", f"ended as {self.state}, then became {change.run_state_after}")
        before = self.state
        if change.run_state_after is not None:
            self.state = change.run_state_after
        if change.cause == RAISED and POISON not in change.detail:
            raise FoldRaisedError(f"P12: run {self.run_id}: the fold raised {change.detail}")
        applied = change.outcome is Outcome.APPLIED and change.cause not in self.quarantine_ends
        if before is RunState.QUARANTINED and applied:
            self.fail("P12", f"is quarantined, and {change.cause} was applied")
        if before in FINAL and change.changes:
            self.fail("P3", f"changed after its end by {change.cause}")
        if timer:
            flight = self.flights.get(change.step, {}).get(change.epoch)
            if change.cause == "timer:timeout":
                self.check_timeout(change, live_ms)
            if flight is not None and change.cause in {"timer:timeout", "timer:start_limit"}:
                flight.over = change.cause
        if change.outcome is Outcome.APPLIED and not timer:
            self.on_applied(change, entry, log_ms, live_ms)
        for each in change.changes:
            self.steps[each.step] = each.after
            if each.after is StepState.COMPLETED:
                if each.epoch != self.epochs.get(each.step, 0):
                    self.fail("P3", f"step {each.step} completed by superseded epoch {each.epoch}")
                self.completed.setdefault(each.step, each.epoch)
        expired = self.state is RunState.EXPIRED and before is not RunState.EXPIRED
        if expired and log_ms < self.expires_ms:
            self.fail("P6", f"expired {self.expires_ms - log_ms} ms before its time")

    def check_timeout(self, change: Transition, live_ms: int) -> None:
        flight = self.flights.get(change.step, {}).get(change.epoch)
        if change.epoch == 0:
            return
        if flight is None or flight.started_live_ms is None:
            self.fail("P3", f"step {change.step} epoch {change.epoch} timed out and never started")
            return
        early = flight.started_live_ms + flight.handoff.timeout_ms - live_ms
        if early > 0:
            self.fail("P8", f"step {change.step} timed out {early} ms of live time too early")

    def on_applied(self, change: Transition, entry: Entry, log_ms: int, live_ms: int) -> None:
        """The core says that this event changed the run; the event is the one in the log."""
        event = entry.event
        if change.cause == "RunStarted" and isinstance(event, RunStarted):
            self.started = event
            self.expires_ms = log_ms + event.ttl_ms
            kept = len(self.early) <= EARLY_MAX and log_ms < self.early_since() + EARLY_WAIT_MS
            self.note_due = kept and any(kind == "InformationSupplied" for kind, _ in self.early)
            return
        if change.cause == "InformationSupplied":
            self.note_due = False
        if self.started is not None and log_ms >= self.expires_ms:
            self.fail("P6", f"{change.cause} was applied although the run's time was over")
        if type(event).__name__ != change.cause or event.run_id != self.run_id:
            return
        if isinstance(event, RunPaused):
            self.paused = True
        elif isinstance(event, RunResumed):
            self.paused = False
        elif isinstance(event, RunCancelled) and self.state is not RunState.CANCELLED:
            self.fail("P3", f"was cancelled and is {self.state}")
        elif isinstance(event, StallSuspected):
            flight = self.flights.get(event.step, {}).get(event.epoch)
            # Stuck goes on record; only its timeout ends such an attempt.
            if flight is not None and event.verdict is not Verdict.STUCK:
                flight.given_back = True
                flight.over = event.verdict
        elif isinstance(event, AttemptEvent):
            self.on_attempt_applied(event, entry, log_ms, live_ms)

    def on_attempt_applied(
        self, event: AttemptEvent, entry: Entry, log_ms: int, live_ms: int
    ) -> None:
        flight = self.flights.get(event.step, {}).get(event.epoch)
        if flight is not None:
            # Verdicts that had not read this are void.
            flight.reported_at = entry.offset
        if isinstance(event, EffectIntended | EffectConfirmed):
            return
        if event.epoch == 0 and event.step not in self.epochs:
            self.on_own_attempt(event)
            return
        if flight is None or event.epoch != self.epochs.get(event.step):
            self.fail(
                "P3", f"{type(event).__name__} of {event.step} epoch {event.epoch} was applied"
            )
            return
        if not isinstance(event, StepProgressed) and flight.over:
            self.fail("P3", f"{type(event).__name__} was applied after its attempt's {flight.over}")
        if isinstance(event, StepStarted):
            if entry.at_ms >= flight.handoff.start_by_ms:
                self.fail(
                    "P4", f"step {event.step} epoch {event.epoch} started after its start limit"
                )
            flight.started_live_ms = live_ms
        elif isinstance(event, StepReleased | StepFailed):
            flight.given_back = True
            flight.over = type(event).__name__
            if isinstance(event, StepFailed):
                self.on_failure(event, log_ms)

    def on_own_attempt(self, event: AttemptEvent) -> None:
        """A service's own attempts only rise."""
        if event.attempt < self.own_attempts.get(event.step, 0):
            self.fail("P3", f"step {event.step}: the service's attempt {event.attempt} is older")
        self.own_attempts[event.step] = event.attempt

    def on_failure(self, event: StepFailed, log_ms: int) -> None:
        if self.spec is None or event.failure_type not in {
            FailureType.TRANSIENT,
            FailureType.DEPENDENCY,
        }:
            return
        count = self.failures[event.step] = self.failures.get(event.step, 0) + 1
        least = ceiling_ms(self.spec.step(event.step).retry, count) // 2
        asked = event.retry_after_ms or 0
        self.not_before[event.step] = log_ms + max(least, asked)

    def check_clocks(self, log_ms: int, live_ms: int) -> None:
        if self.started is None or self.state in FINAL or self.state is RunState.QUARANTINED:
            return
        if self.note_due:
            self.fail("P1", "an event that came early was not applied when the run started")
        if log_ms >= self.expires_ms:
            self.fail(
                "P6", f"is {self.state} {log_ms - self.expires_ms} ms after its time was over"
            )
        for step, epoch in self.epochs.items():
            flight = self.flights[step][epoch]
            if step in self.completed or flight.given_back:
                continue
            if flight.started_live_ms is not None:
                limit = flight.handoff.timeout_ms + LIVE_CAP_MS
                late = live_ms - flight.started_live_ms - limit
                if late >= 0 and self.flies(self.run_id, step, epoch):
                    self.fail("P6", f"step {step} epoch {epoch} runs {late} ms beyond its timeout")

    def settled(self) -> bool:
        """Ended, refused, or all that is left waits for a person who was asked."""
        if self.state is None:
            return self.refused
        if self.state is RunState.QUARANTINED:
            # Put aside for a person, with its time to live as the deadline.
            return True
        if self.state is not RunState.WAITING:
            return self.state in FINAL
        states = list(self.steps.values())
        moving = IN_FLIGHT if self.gated else MOVING
        asks = self.gated or any(state in ASKING for state in states)
        return asks and self.escalations > 0 and not any(state in moving for state in states)

    def on_escalation(self, escalation: Escalation) -> None:
        self.escalations += 1
        self.outage.on_package(escalation)
        if escalation.failure_type == FailureType.UNSAFE or escalation.asked == "approval":
            # No further step of the run starts until a person agrees.
            self.gated = True

    def check_put_aside(self) -> None:
        """P12: a run on which the fold raised is put aside for a person, whole."""
        if self.state is not None and self.state is not RunState.QUARANTINED:
            self.fail("P12", f"the fold raised on it, and it is {self.state}")

    def on_answer(self, answer: Answer) -> None:
        if answer.answer is AnswerType.ENDED:
            self.ended = answer
        elif (
            answer.answer is AnswerType.REFUSED
            and answer.kind == "RunStarted"
            and self.state is None
        ):
            self.refused = True

    def check_context(self) -> None:
        """P5: the run ended well, so its context is what the completed attempts wrote, no more."""
        if self.ended is None or self.spec is None:
            self.fail("P6", "succeeded, and its client was not told")
            return
        if self.ended.context_omitted:
            return
        for field, value in unpack(self.ended.context).items():
            if value != self.expected(field):
                self.fail("P5", f"ended with {field}={value}, not {self.expected(field)}")
