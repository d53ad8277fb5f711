"""An account of one run that can be taken back, kept from events and outputs alone."""

from __future__ import annotations

from typing import Any

from tests.simulation.log import Entry
from tests.simulation.story import FINAL, Story

from dalsegno.schemas.events import RunCancelled
from dalsegno.schemas.outputs import EffectStatus, Handoff, RunState, StepState, Transition
from dalsegno.schemas.plan import StepRole

NEVER = 1 << 62
_ENDED = {RunState.CANCELLED, RunState.EXPIRED, RunState.FAILED}
_BACK = {RunState.COMPENSATING, RunState.COMPENSATED}


class SagaStory(Story):
    """`turned_at`: the offset from which on the run goes back."""

    turned_at: int | None = None

    def __init__(self, *what: Any) -> None:
        super().__init__(*what)
        # What the last handoff of a step's compensation said of each of its effects.
        self.told: dict[str, dict[tuple[str, int], EffectStatus]] = {}
        # Steps that a person has taken back, outside of what is known here.
        self.by_hand: set[str] = set()

    def compensation_of(self, step: str) -> str:
        """The step that takes another one back, or an empty text."""
        assert self.spec is not None, "every run of these worlds has a spec"
        return self.spec.step(step).compensate

    def owner_of(self, name: str) -> str:
        """The step that a compensation takes back, or an empty text."""
        assert self.spec is not None, "every run of these worlds has a spec"
        steps = self.spec.started.plan.steps
        return next((step.name for step in steps if step.compensate == name), "")

    def intents_of(self, step: str, offset: int) -> dict[tuple[str, int], str]:
        """Keys of the effects that a step had intended ahead of an offset."""
        return {
            (effect, occurrence): key
            for (name, effect, occurrence), (key, at) in self.intended.items()
            if name == step and at < offset
        }

    def on_dispatch(self, handoff: Handoff, offset: int, log_ms: int, live_ms: int) -> None:
        assert self.spec is not None, "every run of these worlds has a spec"
        step = handoff.step
        if self.spec.step(step).role is StepRole.FORWARD:
            if self.turned_at is not None:
                self.fail("saga", f"step {step} goes forward in a run that goes back")
            super().on_dispatch(handoff, offset, log_ms, live_ms)
            return
        if self.turned_at is None:
            self.fail("saga", f"{step} runs in a run that goes forward")
        done_before = self.completed.pop(step, None)
        super().on_dispatch(handoff, offset, log_ms, live_ms)
        self.check_undo(handoff, offset, again=done_before is not None)
        self.check_order(handoff.undoes, offset)
        self.check_pivots(offset)

    def check_undo(self, handoff: Handoff, offset: int, *, again: bool) -> None:
        """It says all that was intended before this record, and of no step that did nothing."""
        undoes = handoff.undoes
        if undoes != self.owner_of(handoff.step):
            self.fail("saga", f"{handoff.step} is told to take back {undoes!r}")
        told = {(entry.effect, entry.occurrence): entry for entry in handoff.undo}
        due = self.intents_of(undoes, offset)
        if lacking := [place for place in due if place not in told]:
            self.fail("saga", f"{handoff.step} is not told of {lacking}")
        if strange := [
            place for place, entry in told.items() if self.key_of(undoes, place) != entry.key
        ]:
            self.fail("saga", f"{handoff.step} is told of {strange}, which nobody intended")
        if undoes not in self.completed and not told:
            self.fail("saga", f"{undoes} did nothing and is taken back")
        if again and not told:
            self.fail("saga", f"{undoes} is taken back again for nothing")
        self.told[undoes] = {place: entry.status for place, entry in told.items()}
        for (effect, occurrence), entry in told.items():
            at = self.confirmed.get((undoes, effect, occurrence))
            if at is not None and at < offset and entry.status is not EffectStatus.CONFIRMED:
                self.fail("saga", f"{handoff.step}: {effect}/{occurrence} is known to be done")

    def key_of(self, step: str, place: tuple[str, int]) -> str:
        return self.intended.get((step, *place), ("", 0))[0]

    def check_order(self, undoes: str, offset: int) -> None:
        """What depended on the step, and had acted or completed by then, is taken back already."""
        assert self.spec is not None, "every run of these worlds has a spec"
        behind = self.behind(undoes)
        for name in behind:
            back = self.compensation_of(name)
            if not back or not (name in self.completed or self.intents_of(name, offset)):
                continue
            if self.steps.get(name) is not StepState.COMPENSATED:
                self.fail("saga", f"{undoes} is taken back ahead of {name}, which needs it")

    def behind(self, step: str) -> set[str]:
        """Every step that needs this one, directly or not."""
        assert self.spec is not None, "every run of these worlds has a spec"
        found: set[str] = set()
        while True:
            more = {
                each.name
                for each in self.spec.started.plan.steps
                if each.name not in found and ({step} | found) & set(each.needs)
            }
            if not more:
                return found
            found |= more

    def check_pivots(self, offset: int) -> None:
        assert self.spec is not None, "every run of these worlds has a spec"
        turned_at = self.turned_at if self.turned_at is not None else offset
        for step in self.spec.started.plan.steps:
            if step.pivot and (
                step.name in self.completed or self.intents_of(step.name, turned_at)
            ):
                self.fail("saga", f"goes back after its pivot {step.name}")

    def on_transition(self, change: Transition, entry: Entry, log_ms: int, live_ms: int) -> None:
        turns = any(each.after is StepState.COMPENSATING for each in change.changes)
        if self.turned_at is None and (turns or change.run_state_after in _BACK):
            self.turned_at = entry.offset
            self.expires_ms = 0
        before = self.state
        for each in change.changes:
            # A compensation may complete once more, with what came late.
            if each.after is StepState.COMPLETED and self.owner_of(each.step):
                self.completed.pop(each.step, None)
        super().on_transition(change, entry, log_ms, live_ms)
        if self.state is RunState.COMPENSATED and before not in FINAL:
            self.check_compensated(entry.offset)
        if self.state in _ENDED and before not in FINAL and self.turned_at is None:
            self.check_nothing_left(entry.offset)

    def check_nothing_left(self, offset: int) -> None:
        """A run that ends from outside, and may go back, leaves nothing that can be taken back."""
        assert self.spec is not None, "every run of these worlds has a spec"
        steps = self.spec.started.plan.steps
        if any(step.pivot for step in steps):
            return
        for step in steps:
            did = step.name in self.completed or self.intents_of(step.name, offset)
            if step.compensate and did:
                self.fail("saga", f"ended as {self.state}, and {step.name} was not taken back")

    def check_compensated(self, offset: int) -> None:
        """Never said of a run of which something is left to take back."""
        assert self.spec is not None, "every run of these worlds has a spec"
        for step in self.spec.started.plan.steps:
            if not step.compensate:
                continue
            if step.name not in self.completed and not self.intents_of(step.name, offset):
                continue
            if self.steps.get(step.compensate) is not StepState.COMPLETED:
                self.fail("saga", f"compensated, and {step.name} was not taken back")
            self.check_all_was_known(step.name, offset)

    def check_all_was_known(self, step: str, offset: int) -> None:
        """Its compensation ran with all that was in the log by then."""
        told = self.told.get(step, {})
        for place in self.intents_of(step, offset):
            confirmed = self.confirmed.get((step, *place), offset) < offset
            if place not in told or (confirmed and told[place] is not EffectStatus.CONFIRMED):
                self.fail("saga", f"compensated, and {step} was taken back without all of {place}")

    def on_applied(self, change: Transition, entry: Entry, log_ms: int, live_ms: int) -> None:
        if isinstance(entry.event, RunCancelled) and self.turned_at is not None:
            return
        if self.turned_at is None:
            super().on_applied(change, entry, log_ms, live_ms)
        else:
            self.without_end(super().on_applied, change, entry, log_ms, live_ms)

    def check_clocks(self, log_ms: int, live_ms: int) -> None:
        if self.turned_at is None:
            super().check_clocks(log_ms, live_ms)
        else:
            self.without_end(super().check_clocks, log_ms, live_ms)

    def without_end(self, check: Any, *what: Any) -> None:
        """A run that goes back has no time to live."""
        was, self.expires_ms = self.expires_ms, NEVER
        check(*what)
        self.expires_ms = was
