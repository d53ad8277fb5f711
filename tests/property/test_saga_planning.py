"""What must be taken back, and in which order: for any plan and any history."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.sagas import before, cases

from dalsegno.schemas.outputs import StepState
from dalsegno.schemas.plan import StepRole
from dalsegno.streams.core.plan import CompiledPlan
from dalsegno.streams.core.saga.order import hold_again, let_go
from dalsegno.streams.core.saga.planning import (
    WHOLE,
    StepPast,
    held_back,
    plan_undo,
)
from dalsegno.streams.core.saga.remainder import remainder

Case = tuple[CompiledPlan, dict[int, StepPast]]


class Holds:
    """Counts in a list, and the steps that have something left to take back."""

    def __init__(self, held: tuple[int, ...], busy: set[int]) -> None:
        self.counts = list(held)
        self.left = busy

    def held(self, place: int) -> int:
        return self.counts[place]

    def add(self, place: int, by: int) -> None:
        self.counts[place] += by
        assert self.counts[place] >= 0

    def busy(self, place: int) -> bool:
        return place in self.left


@given(cases())
def test_every_effect_of_every_step_is_in_exactly_one_place(case: Case) -> None:
    """Never skipped silently, never taken back by two, never by what belongs to another step."""
    plan, pasts = case
    undo = plan_undo(plan, pasts)
    owner: dict[int, int] = {}
    for place, past in pasts.items():
        found: Counter[int] = Counter()
        undoing = undo.of.get(place)
        if undoing is not None:
            for unit in undoing.units:
                assert plan.steps[unit.by].role is StepRole.COMPENSATION
                assert owner.setdefault(unit.by, unit.step) == unit.step == place
                found.update(unit.effects)
            found.update(at for at in undoing.orphans if at != WHOLE)
            found.update(undoing.kept)
            for at in undoing.kept:
                assert not past.effects[at].undo
                assert not plan.steps[place].compensate
        assert found == Counter(range(len(past.effects)))


@given(cases())
def test_what_completed_is_taken_back_as_declared_and_what_did_nothing_is_left_alone(
    case: Case,
) -> None:
    plan, pasts = case
    undo = plan_undo(plan, pasts)
    for place, step in enumerate(plan.steps):
        past = pasts.get(place, StepPast())
        by = {plan.steps[unit.by].name for unit in undo.of[place].units} if place in undo.of else ()
        if past.completed and step.compensate:
            assert step.compensate in by
        if not past.completed and not past.effects:
            assert place not in undo.of
        if by and not past.completed:
            assert all(unit.effects for unit in undo.of[place].units)


@given(cases(), st.randoms(use_true_random=False))
def test_units_run_once_in_reverse_order_and_independent_ones_side_by_side(
    case: Case, random
) -> None:
    plan, pasts = case
    undo = plan_undo(plan, pasts)
    busy = set(undo.busy)
    holds = Holds(undo.held, busy)
    may = {place for place in busy if not undo.held[place]}
    done: list[int] = []
    while may:
        # Side by side: whatever nothing that is left depends on may go now, all of it.
        assert may == {
            place for place in busy if not any(place in before(plan, other) for other in busy)
        }
        place = random.choice(sorted(may))
        may.discard(place)
        done.append(place)
        busy.discard(place)
        may.update(let_go(plan, place, holds))
        assert tuple(holds.counts) == held_back(plan, busy)
    assert not busy, "something was left behind"
    assert len(done) == len(set(done))
    for at, place in enumerate(done):
        assert not before(plan, place) & set(done[:at])


@settings(max_examples=200)
@given(cases(), st.data())
def test_what_is_found_out_late_holds_back_what_has_not_begun(case: Case, data: st.DataObject):
    """Steps become busy and clear in any order: the counts are those of a fresh count, always."""
    plan, pasts = case
    busy = set(plan_undo(plan, pasts).busy)
    holds = Holds(held_back(plan, busy), busy)
    forward = list(plan.order)
    for _ in range(data.draw(st.integers(1, 12))):
        place = data.draw(st.sampled_from(forward))
        clear = holds.held(place) == 0
        if place in busy:
            busy.discard(place)
            if clear:
                for free in let_go(plan, place, holds):
                    assert free in busy
        else:
            busy.add(place)
            if clear:
                hold_again(plan, place, holds)
        assert tuple(holds.counts) == held_back(plan, busy)


@given(cases(), st.data())
def test_the_remainder_is_exact(case: Case, data: st.DataObject) -> None:
    plan, pasts = case
    undo = plan_undo(plan, pasts)
    ends = (StepState.COMPLETED, StepState.ESCALATED, StepState.DISPATCHED, StepState.PENDING)
    states = {unit.by: data.draw(st.sampled_from(ends)) for unit in undo.units}
    left = remainder(plan, pasts, undo, lambda place: states.get(place, StepState.COMPENSATING))
    said = Counter((part.step, part.by) for part in left.undone + left.left)
    names = [plan.steps[unit.step].name for unit in undo.units]
    by = [plan.steps[unit.by].name for unit in undo.units]
    orphans = [plan.steps[place].name for place, each in undo.of.items() if each.orphans]
    assert said == Counter([*zip(names, by, strict=True), *((name, "") for name in orphans)])
    for part in left.undone:
        assert part.state is StepState.COMPLETED
    for part in left.stuck:
        assert part.state is StepState.ESCALATED or not part.by
    keys = Counter(key for part in left.undone + left.left + left.kept for key in part.effects)
    assert keys == Counter(e.entry.key for past in pasts.values() for e in past.effects)
