"""Random plans with compensations, and random histories of their runs."""

from __future__ import annotations

from hypothesis import strategies as st

from dalsegno.schemas.control import Policy
from dalsegno.schemas.outputs import EffectStatus, JournalEntry
from dalsegno.schemas.plan import Plan, StepPlan, StepRole
from dalsegno.streams.core.plan import CompiledPlan, compile_plan
from dalsegno.streams.core.runstate import Effect
from dalsegno.streams.core.saga.planning import StepPast

# What an effect may have registered: nothing, its step's own compensation, one of its own, one that
# several steps name, a step that is no compensation, and a name that the plan lacks.
_UNDO = ("", "own", "single", "shared", "forward", "lacking")


@st.composite
def plans(draw: st.DrawFn, most: int = 9) -> CompiledPlan:
    """A random graph of up to `most` forward steps, most of them with a compensation."""
    count = draw(st.integers(1, most))
    steps: list[StepPlan] = []
    for i in range(count):
        needs = [f"s{j}" for j in range(i) if draw(st.integers(0, 2)) == 0]
        with_undo = draw(st.integers(0, 3)) > 0
        steps.append(
            StepPlan(name=f"s{i}", needs=tuple(needs), compensate=f"u{i}" if with_undo else "")
        )
        if with_undo:
            steps.append(StepPlan(name=f"u{i}", role=StepRole.COMPENSATION))
        steps.append(StepPlan(name=f"e{i}", role=StepRole.COMPENSATION))
    steps.append(StepPlan(name="shared", role=StepRole.COMPENSATION))
    return compile_plan(Plan(steps=tuple(steps)), policy=Policy(), ttl_ms=86_400_000)


@st.composite
def histories(draw: st.DrawFn, plan: CompiledPlan) -> dict[int, StepPast]:
    """How far the forward steps came: nothing completed ahead of what it needs."""
    pasts: dict[int, StepPast] = {}
    for place in plan.order:
        if not all(pasts.get(need, StepPast()).completed for need in plan.needs[place]):
            continue
        effects = tuple(
            draw(effects_of(plan.steps[place].name, at)) for at in range(draw(st.integers(0, 3)))
        )
        completed = draw(st.integers(0, 3)) > 0
        if completed or effects:
            pasts[place] = StepPast(completed=completed, effects=effects)
    return pasts


@st.composite
def effects_of(draw: st.DrawFn, step: str, at: int) -> Effect:
    """One effect of a step, confirmed or not, with or without a way back."""
    number = step[1:]
    undo = {
        "": "",
        "own": f"u{number}",
        "single": f"e{number}",
        "shared": "shared",
        "forward": step,
        "lacking": "nobody",
    }[draw(st.sampled_from(_UNDO))]
    status = draw(st.sampled_from(EffectStatus))
    entry = JournalEntry(effect="act", occurrence=at, key=f"{step}/{at}", status=status, epoch=1)
    return Effect(entry, 1, undo, b"")


@st.composite
def cases(draw: st.DrawFn, most: int = 9) -> tuple[CompiledPlan, dict[int, StepPast]]:
    """A plan, and how far a run of it came."""
    plan = draw(plans(most))
    return plan, draw(histories(plan))


def before(plan: CompiledPlan, place: int) -> set[int]:
    """Everything that a step needs, directly or not: an oracle of its own."""
    found: set[int] = set()
    todo = list(plan.needs[place])
    while todo:
        need = todo.pop()
        if need not in found:
            found.add(need)
            todo.extend(plan.needs[need])
    return found
