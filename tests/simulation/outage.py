"""What is known of one run that an outage has hurt: by the end of its time, people are asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.log import Entry

from dalsegno.schemas.control import Policy, StallSuspected, Verdict
from dalsegno.schemas.events import FailureType, StepFailed
from dalsegno.schemas.outputs import (
    Escalation,
    Outcome,
    RunState,
    StepChange,
    StepState,
    Transition,
)
from dalsegno.streams.core.recovery.giving_up import REASON

if TYPE_CHECKING:
    from tests.simulation.story import Story

_COMES_BACK = {
    StepState.PENDING,
    StepState.HELD,
    StepState.BACKING_OFF,
    StepState.DISPATCHED,
    StepState.RUNNING,
}


class Outage:
    """`faulted`: steps that an outage or a lost worker has hurt, until they complete or a person
    decides. `handed_over`: people were asked about these when its time to live was over.
    `person_wait_ms`: how long a person has then, at least. `asked`: steps whose fields a person was
    asked for, while they wait for these.
    """

    def __init__(self, story: Story) -> None:
        self.story = story
        self.faulted: set[str] = set()
        self.handed_over = False
        self.person_wait_ms = Policy().person_wait_ms
        self.asked: set[str] = set()
        self._asked_now = False
        self._aside = False

    def on_package(self, package: Escalation) -> None:
        """Ahead of the transition of its unit."""
        if package.asked == "information":
            self.asked.add(package.step)
            self._asked_now = True

    def on_transition(self, change: Transition, entry: Entry, log_ms: int) -> None:
        """Ahead of the account of the run itself."""
        story = self.story
        self._aside = self._aside or RunState.QUARANTINED in {story.state, change.run_state_after}
        self._note_fault(change, entry)
        if change.cause == "timer:ttl" or change.run_state_after is RunState.EXPIRED:
            self._check_not_just_expired(change)
        for each in change.changes:
            if each.after is StepState.COMPLETED:
                self.faulted.discard(each.step)
            if each.before is StepState.MISSING_INFO:
                self.asked.discard(each.step)
            if each.after is StepState.ESCALATED and change.cause == "timer:ttl":
                self._on_given_up(each)
        if change.reason == REASON and not self.handed_over:
            self._on_handed_over(change, log_ms)
        self._asked_now = False

    def _note_fault(self, change: Transition, entry: Entry) -> None:
        """The step of this transition has lost an attempt, and not by its own word."""
        event = entry.event
        lost = change.cause == "timer:timeout" and change.epoch > 0
        if change.outcome is Outcome.APPLIED and change.cause == type(event).__name__:
            if isinstance(event, StepFailed):
                lost = event.failure_type is FailureType.DEPENDENCY
            elif isinstance(event, StallSuspected):
                lost = event.verdict is not Verdict.STUCK and event.epoch > 0
        if lost:
            self.faulted.add(change.step)

    def _check_not_just_expired(self, change: Transition) -> None:
        """P6: what is being brought back after a fault not its own is put to a person first.

        At each end of a time to live, also at one that ends nothing.
        """
        steps = self.story.steps
        back = {step for step in self.faulted if steps.get(step) in _COMES_BACK}
        seeking = {step for step in self.faulted if steps.get(step) is StepState.MISSING_INFO}
        back |= seeking - self.asked
        known = self.story.is_known and not (self.handed_over or self._aside)
        if known and back and change.run_state_after is RunState.EXPIRED:
            self.story.fail("P6", f"just expired, though {sorted(back)} was being brought back")

    def _on_given_up(self, change: StepChange) -> None:
        """The attempt that was out is over: nothing more of it may be applied."""
        flight = self.story.flights.get(change.step, {}).get(change.epoch)
        if flight is not None:
            flight.given_back = True
            flight.over = flight.over or "timer:ttl"

    def _on_handed_over(self, change: Transition, log_ms: int) -> None:
        """It has as long as a person has, and its time again, and only if one is asked."""
        self.handed_over = True
        story = self.story
        asked = any(each.after is StepState.ESCALATED for each in change.changes)
        if not self._asked_now and not asked:
            story.fail("P6", "has more time, and nobody is asked about a step")
        # One that goes back has no time to live.
        if story.expires_ms and story.started is not None:
            story.expires_ms = log_ms + self.person_wait_ms + story.started.ttl_ms
