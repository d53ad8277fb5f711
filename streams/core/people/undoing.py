"""Where people's decisions turn a run round, or take back by hand what it could not."""

from __future__ import annotations

from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.moment import Ruling, refused
from dalsegno.streams.core.people.options import by_hand_only
from dalsegno.streams.core.saga.beginning import begin
from dalsegno.streams.core.saga.looking import effects_of, foresee, known_of, undoing_now
from dalsegno.streams.core.saga.state import Undoes
from dalsegno.streams.core.saga.taking_back import compensation_completed, taken_back_by_hand
from dalsegno.streams.core.saga.turning import refusal
from dalsegno.streams.core.step_table import COMPLETED


def undo_now(draft: Draft, detail: str) -> Ruling | None:
    """Begins to take the run back because a person says so, or says why that cannot be."""
    if why_not := refusal(draft):
        return refused("not_available", why_not)
    begin(draft, foresee(draft), "decided", detail)
    return None


def done_by_hand(draft: Draft, place: int) -> None:
    """A person has done what the step was to take back, with all that is known of it by now."""
    if by_hand_only(draft, place):
        taken_back_by_hand(draft, place)
        return
    row = draft.row(place)
    undoes = row.undoes
    assert undoes is not None, "a compensation runs for a step"
    effects = effects_of(draft, undoes.step)
    units = undoing_now(draft, undoes.step).units
    known = max((known_of(effects, unit.effects) for unit in units if unit.by == place), default=0)
    row.undoes = Undoes(undoes.step, known)
    draft.move(place, row, COMPLETED)
    compensation_completed(draft, place)
