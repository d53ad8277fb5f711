"""What compensation would undo: the one place where people's decisions meet the undo order."""

from __future__ import annotations

from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.moment import Ruling, refused


def undo_refusal(draft: Draft) -> str:
    """Why the run cannot be undone, or an empty text."""
    if not undone_by_compensation(draft):
        return "no step that has run declares how it is undone"
    return "undoing is not possible in this version: retry, skip or cancel"


def undone_by_compensation(draft: Draft) -> tuple[str, ...]:
    """Steps that have run, or may have, and declare an undo; the last one first."""
    plan = draft.plan
    return tuple(
        plan.steps[place].name
        for place in reversed(plan.order)
        if plan.steps[place].compensate and draft.peek(place).epoch
    )


def give_up(draft: Draft, reason: str) -> bool:
    """The run cannot reach its goal: begins to undo it where its plan says so. False: it does not
    say so, or nothing can be undone.
    """
    del draft, reason
    return False


def undo_now(draft: Draft, reason: str) -> Ruling | None:
    """Begins to undo the run because a person says so, or says why that cannot be."""
    del reason
    return refused("not_available", undo_refusal(draft))
