"""An account of one run that people decide about, that waits for permits, and that may go back."""

from __future__ import annotations

from typing import Any

import msgspec
from tests.simulation.body import written
from tests.simulation.deciders import SECRET
from tests.simulation.log import Entry
from tests.simulation.saga_story import SagaStory
from tests.simulation.story import FINAL, RAISED

from dalsegno.schemas.control import DecisionMade, DecisionType
from dalsegno.schemas.events import FailureType, InformationSupplied, RunEvent, StepCompleted
from dalsegno.schemas.outputs import (
    EffectStatus,
    Escalation,
    Handoff,
    Outcome,
    RunState,
    StepChange,
    StepState,
    Transition,
)
from dalsegno.schemas.plan import OnFailure, Risk, StepRole
from dalsegno.streams.core.people.lint import lint
from dalsegno.streams.core.recovery.giving_up import REASON

REMINDERS_MAX = 5
unpack = msgspec.msgpack.decode


class CombinedStory(SagaStory):
    """`given`: fields that came from outside the plan. `approvals`: by step, what was agreed to.

    `gates`: open questions that hold back everything, by step, or by an empty name for the run.
    `stretched`: its time to live may have stood still, so that only its lower bound is known.
    `blurred`: events that waited were applied out of sight, so that values are not known here.
    """

    quarantine_ends = frozenset({"RunCancelled", "timer:ttl", RAISED, "DecisionMade"})

    def __init__(self, *what: Any) -> None:
        super().__init__(*what)
        self.given: dict[str, Any] = {"card": SECRET}
        self.packages: dict[str, Escalation] = {}
        self.shown: dict[str, dict[str, Any]] = {}
        self._just_asked: list[Escalation] = []
        self.decided: dict[str, DecisionMade] = {}
        self.approvals: dict[str, dict[str, Any]] = {}
        self.approved_undo: dict[str, dict[tuple[str, int], EffectStatus]] = {}
        self.again: dict[str, tuple[str, int]] = {}
        self.gates: dict[str, str] = {}
        self.stretched = False
        self.outage.person_wait_ms = 20_000
        self.blurred = False
        self.put_aside = False

    def is_done(self, step: str) -> bool:
        return (
            step in self.completed
            or step in self.again
            or self.steps.get(step) is StepState.SKIPPED
        )

    def settled(self) -> bool:
        """It has ended, by itself or by a person's word or silence: there is no other rest."""
        return self.refused if self.state is None else self.state in FINAL

    def expected(self, field: str) -> Any:
        if field in self.given:
            return self.given[field]
        again = self.again.get(field.removesuffix("_out"))
        # What is run again for a fact has left what it wrote.
        return super().expected(field) if again is None else written(*again)

    def on_early(self, event: Any, log_ms: int) -> None:
        super().on_early(event, log_ms)
        if self.state is RunState.QUARANTINED and isinstance(event, RunEvent):
            self.blurred = True

    def on_dispatch(self, handoff: Handoff, offset: int, log_ms: int, live_ms: int) -> None:
        assert self.spec is not None, "every run of these worlds has a spec"
        step = self.spec.step(handoff.step)
        if step.role is StepRole.FORWARD and self.gates:
            self.fail("P7", f"step {handoff.step} goes while {self.gates} is asked")
        if self.state is RunState.QUARANTINED:
            self.fail("P12", f"step {handoff.step} goes while the run is put aside")
        if step.risk is not Risk.NONE:
            self.check_taken_back(handoff)
        super().on_dispatch(handoff, offset, log_ms, live_ms)

    def check_taken_back(self, handoff: Handoff) -> None:
        """P7: who agreed to a compensation was shown all that it takes back."""
        agreed = self.approved_undo.get(handoff.step)
        told = {(entry.effect, entry.occurrence): entry.status for entry in handoff.undo}
        if handoff.undoes and not self.blurred and told != agreed:
            self.fail("P7", f"{handoff.step} takes back {told}, and {agreed} was approved")

    def check_inputs(self, handoff: Handoff) -> None:
        if not self.blurred:
            super().check_inputs(handoff)

    def check_journal(self, handoff: Handoff, offset: int) -> None:
        """Of what was reported while the run was put aside only so many events have waited."""
        if not self.blurred:
            super().check_journal(handoff, offset)

    def check_undo(self, handoff: Handoff, offset: int, *, again: bool) -> None:
        if not self.blurred:
            super().check_undo(handoff, offset, again=again)

    def check_risk(self, handoff: Handoff) -> None:
        """P7: a person has agreed to this step with exactly these values."""
        agreed = self.approvals.get(handoff.step)
        if agreed is None:
            self.fail("P7", f"risky step {handoff.step} goes without an approval")
        elif unpack(handoff.inputs) != agreed:
            self.fail("P7", f"risky step {handoff.step} goes with other values than {agreed}")

    def on_transition(self, change: Transition, entry: Entry, log_ms: int, live_ms: int) -> None:
        if change.cause == "timer:resumed":
            for flights in self.flights.values():
                for flight in flights.values():
                    flight.given_back = True
        if change.cause == "timer:answer_by" and self.spec is not None:
            self.check_silence(log_ms)
        if change.cause == "DecisionMade" and change.outcome is Outcome.APPLIED:
            self.on_decision(change, entry)
        self.put_aside = self.put_aside or self.state is RunState.QUARANTINED
        self.stretched = self.stretched or change.reason == REASON
        for each in change.changes:
            self.on_run_again(each, change.cause)
        super().on_transition(change, entry, log_ms, live_ms)
        if self.state in {RunState.WAITING, RunState.PAUSED, RunState.QUARANTINED}:
            self.stretched = True
        if self.turned_at is not None or self.state in FINAL:
            self.gates.clear()
        for each in change.changes:
            wrote = each.after is StepState.COMPLETED and change.cause == "StepCompleted"
            if wrote and self.spec is not None:
                for field in self.spec.step(each.step).writes:
                    self.given.pop(field, None)
        # A package is put out ahead of the transition of its unit, and shows what that leaves.
        for package in self._just_asked:
            self.shown[package.escalation_id] = self.shows(package.step)
        self._just_asked.clear()

    def on_run_again(self, change: StepChange, cause: str) -> None:
        """P4: a completed step runs again only for a missing fact, and never if it acted."""
        step = change.step
        if change.before is StepState.COMPLETED and change.after is not StepState.COMPENSATING:
            if self.owner_of(step):
                return
            if self.intents_of(step, 1 << 62):
                self.fail("P4", f"step {step} acted, was completed and is run again")
            self.again[step] = (step, self.completed.pop(step))
        elif change.after is StepState.COMPLETED and step in self.again:
            _, epoch = self.again.pop(step)
            if cause != "StepCompleted":
                self.completed[step] = epoch

    def check_silence(self, log_ms: int) -> None:
        """Nobody answered: then somebody was asked, and had the time that the package said."""
        asked = [each for name, each in self.packages.items() if name not in self.decided]
        if not any(each.answer_by_ms <= log_ms for each in asked):
            self.fail("P6", "silence was taken for an answer ahead of its time")

    def on_decision(self, change: Transition, entry: Entry) -> None:
        """A person's word counts, once, and only as it was shown."""
        event = entry.event
        if not isinstance(event, DecisionMade) or event.run_id != self.run_id:
            # One that had waited while the run was put aside.
            self.blurred = True
            self.gates.clear()
            return
        package = self.packages.get(event.escalation_id)
        if package is None:
            self.fail("people", f"{event.escalation_id} was decided and never asked")
            return
        if event.escalation_id in self.decided:
            self.fail("people", f"{event.escalation_id} was decided twice")
        if event.package_digest != package.package_digest:
            self.fail("people", f"{event.escalation_id} was decided by another digest")
        if not self.blurred and self.shown[event.escalation_id] != self.shows(event.step):
            self.fail("people", f"{event.escalation_id} was decided on values that have moved")
        if change.actor != event.decided_by or event.reason not in change.reason:
            self.fail("people", "who and why are not on record")
        self.decided[event.escalation_id] = event
        self.gates.pop(event.step, None)
        self.outage.faulted.discard(event.step)
        self.not_before.pop(event.step, None)
        self.failures.pop(event.step, None)
        for _, path, value in unpack(event.ops) if event.ops else ():
            self.given[path[0]] = value
        if event.decision is DecisionType.SKIP and self.turned_at is not None:
            self.on_taken_back_by_hand(self.owner_of(event.step) or event.step, entry.offset)
        if event.decision is DecisionType.APPROVE and event.step and self.spec is not None:
            reads = self.spec.step(event.step).reads
            self.approvals[event.step] = {field: self.expected(field) for field in reads}
            owner = self.owner_of(event.step)
            self.approved_undo[event.step] = self.known_of(owner, entry.offset)

    @property
    def is_known(self) -> bool:
        return not self.blurred

    def on_taken_back_by_hand(self, step: str, offset: int) -> None:
        """A person says that it is done, with all that is known of it by then."""
        self.by_hand.add(step)
        self.told[step] = self.known_of(step, offset)

    def known_of(self, step: str, offset: int) -> dict[tuple[str, int], EffectStatus]:
        """What the log said of each effect of a step by then."""
        return {
            place: EffectStatus.CONFIRMED
            if self.confirmed.get((step, *place), offset) < offset
            else EffectStatus.UNKNOWN
            for place in self.intents_of(step, offset)
        }

    def on_applied(self, change: Transition, entry: Entry, log_ms: int, live_ms: int) -> None:
        event = entry.event
        if change.cause in {"RunPaused", "RunResumed"}:
            self.paused = change.cause == "RunPaused"
        if isinstance(event, StepCompleted) and change.cause == "StepCompleted":
            for _, path, value in unpack(event.ops):
                if path == ["note"]:
                    self.given["note"] = value
        if isinstance(event, InformationSupplied) and change.cause == "InformationSupplied":
            for _, path, value in unpack(event.ops):
                self.given[path[0]] = value
        if self.stretched:
            self.without_end(super().on_applied, change, entry, log_ms, live_ms)
        else:
            super().on_applied(change, entry, log_ms, live_ms)

    def check_clocks(self, log_ms: int, live_ms: int) -> None:
        if self.stretched:
            self.without_end(super().check_clocks, log_ms, live_ms)
        else:
            super().check_clocks(log_ms, live_ms)

    def check_end_of_time(self, cause: str, expires_ms: int) -> None:
        if not self.stretched:
            super().check_end_of_time(cause, expires_ms)

    def check_nothing_left(self, offset: int) -> None:
        """A person may say that it ends as it is, and so may our own fault."""
        assert self.spec is not None, "every run of these worlds has a spec"
        by_hand = any(each.decision is DecisionType.CANCEL for each in self.decided.values())
        goes_back = self.spec.started.plan.on_failure is OnFailure.COMPENSATE
        if goes_back and not by_hand and not self.put_aside:
            super().check_nothing_left(offset)

    def on_escalation(self, escalation: Escalation) -> None:
        if faults := lint(escalation):
            self.fail("people", f"package {escalation.escalation_id}: {faults}")
        if SECRET in str(escalation):
            self.fail("people", f"package {escalation.escalation_id} shows a secret")
        if escalation.reminder > REMINDERS_MAX:
            self.fail("P6", f"{escalation.escalation_id} is reminded of for ever")
        self.escalations += 1
        self.outage.on_package(escalation)
        if escalation.asked == "notice":
            return
        known = self.packages.get(escalation.escalation_id)
        if known is not None and known.package_digest != escalation.package_digest:
            self.fail("people", f"{escalation.escalation_id} names two packages")
        if escalation.escalation_id in self.decided:
            self.fail("people", f"{escalation.escalation_id} was decided and is asked again")
        self.packages[escalation.escalation_id] = escalation
        if known is None:
            self._just_asked.append(escalation)
        gate = escalation.asked == "approval" and not escalation.step
        if gate and self.state is not None and self.turned_at is not None:
            self.fail("people", "a gate is asked about while the run goes back")
        if self.turned_at is None and (escalation.failure_type == FailureType.UNSAFE or gate):
            self.gates[escalation.step] = escalation.reason

    def check_compensated(self, offset: int) -> None:
        """What had waited while the run was put aside was applied later than it came."""
        if not self.blurred:
            super().check_compensated(offset)

    def shows(self, step: str) -> dict[str, Any]:
        """What a step would read now."""
        reads = self.spec.step(step).reads if step and self.spec is not None else ()
        return {field: self.expected(field) for field in reads}

    def check_context(self) -> None:
        if not self.blurred:
            super().check_context()
