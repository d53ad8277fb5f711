"""Whether a run may turn round and be taken back: asked before it is, and shown to people."""

from __future__ import annotations

from dalsegno.schemas.outputs import RunState
from dalsegno.schemas.plan import OnFailure
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.saga.looking import foresee, past_pivot

NOTHING_TO_UNDO = "nothing that the run has done declares how it is undone"


def plan_goes_back(draft: Draft) -> bool:
    """Whether the plan says that the run goes back when it cannot reach its goal, and still may."""
    head = draft.head
    if head.saga is not None or draft.plan.plan.on_failure is not OnFailure.COMPENSATE:
        return False
    if head.state is RunState.QUARANTINED:
        # Our own code raised on it: what it did is for a person to look at.
        return False
    return not past_pivot(draft)


def refusal(draft: Draft) -> str:
    """Why the run cannot be taken back now, or an empty text."""
    if draft.head.saga is not None:
        return "the run is being taken back already"
    if pivot := past_pivot(draft):
        return f"step {pivot} is a pivot, and it was done or may have been: only forward from there"
    if not foresee(draft).busy:
        return NOTHING_TO_UNDO
    return ""
