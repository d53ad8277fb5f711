"""What the draft of a run says about what it has done, for whoever asks whether it can go back."""

from __future__ import annotations

from typing import Final

from dalsegno.schemas.outputs import EffectStatus, StepState
from dalsegno.schemas.plan import StepRole
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.rows import StepRow
from dalsegno.streams.core.runstate import Effect
from dalsegno.streams.core.saga.planning import (
    WHOLE,
    StepPast,
    Undoing,
    UndoPlan,
    plan_undo,
    undoing_of,
)
from dalsegno.streams.core.saga.remainder import Remainder, remainder
from dalsegno.streams.core.step_table import COMPLETED, StepInput

# A forward step in one of these has something left to take back, once a saga has begun.
BUSY: Final = frozenset({StepState.COMPENSATING, StepState.ESCALATED})


def effects_of(draft: Draft, place: int) -> tuple[Effect, ...]:
    """The journal of a step as this unit leaves it."""
    effects = draft.journal(place).effects
    if draft.effect is None or draft.effect[0] != place:
        return tuple(effects)
    _, at, effect = draft.effect
    return (*effects[:at], effect, *effects[at + 1 :])


def past_of(draft: Draft, place: int, row: StepRow) -> StepPast:
    """What is known of one forward step."""
    completed = row.state is COMPLETED or row.closed == StepInput.COMPLETED
    return StepPast(completed, effects_of(draft, place))


def pasts(draft: Draft) -> dict[int, StepPast]:
    """What is known of every forward step that has done anything, or may have."""
    found: dict[int, StepPast] = {}
    for place in draft.plan.order:
        past = past_of(draft, place, draft.peek(place))
        if past.completed or past.effects:
            found[place] = past
    return found


def foresee(draft: Draft) -> UndoPlan:
    """What the run would have to take back if it went back now. Walks its steps."""
    return plan_undo(draft.plan, pasts(draft))


def past_pivot(draft: Draft) -> str:
    """The pivot that the run has passed, or an empty text.

    A pivot that is out counts: nobody can say yet that it will not be done.
    """
    for place, step in enumerate(draft.steps):
        if not step.pivot:
            continue
        row = draft.peek(place)
        if row.state is COMPLETED or row.flight is not None or effects_of(draft, place):
            return step.name
    return ""


def left_of(draft: Draft) -> Remainder:
    """What a saga has taken back, and exactly what is left of it."""
    known = pasts(draft)
    undo = plan_undo(draft.plan, known)
    return remainder(draft.plan, known, undo, lambda place: draft.peek(place).state)


def undoing_now(draft: Draft, place: int) -> Undoing:
    """What one forward step has to have taken back, with compensations as they are claimed."""
    past = past_of(draft, place, draft.peek(place))
    names = {effect.undo for effect in past.effects if effect.undo}
    names.add(draft.steps[place].compensate)
    claimed: dict[int, int] = {}
    for name in sorted(names):
        by = draft.plan.index.get(name)
        owner = None if by is None else _owner(draft, by)
        if by is not None and owner is not None:
            claimed[by] = owner
    return undoing_of(draft.plan, place, past, claimed)


def _owner(draft: Draft, by: int) -> int | None:
    """The step that a compensation belongs to: by what it did, or by the plan."""
    undoes = draft.peek(by).undoes
    if undoes is not None:
        return undoes.step
    name = draft.steps[by].name
    for place in draft.plan.order:
        if draft.steps[place].compensate == name:
            return place
    return None


def known_of(effects: tuple[Effect, ...], ats: tuple[int, ...]) -> int:
    """How much is known of some effects of a step: grows with each intent and confirmation."""
    places = [at for at in ats if at != WHOLE]
    confirmed = sum(effects[at].entry.status is EffectStatus.CONFIRMED for at in places)
    return len(ats) + confirmed


def goes_forward(draft: Draft, place: int) -> bool:
    """Whether a step is part of the plan proper, not a compensation."""
    return draft.steps[place].role is StepRole.FORWARD
