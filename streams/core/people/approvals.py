"""Risky steps run only under an approval of exactly this plan, this step and these values (P7)."""

from __future__ import annotations

import msgspec

from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.people.asking import ask_again, moved, publish
from dalsegno.streams.core.people.binding import approval_digest
from dalsegno.streams.core.people.options import APPROVAL
from dalsegno.streams.core.people.state import NOBODY, NOT_HANDLED, Approval
from dalsegno.streams.core.rows import StepRow
from dalsegno.streams.core.step_table import AWAITING_APPROVAL


def approved(draft: Draft, place: int, row: StepRow) -> bool:
    """Whether a person agreed to the step as it would run now. Asked at every dispatch."""
    handled = row.handled
    if handled is None or handled.approval is None:
        return False
    return handled.approval.digest == approval_digest(draft, place)


def ask_approval(draft: Draft, place: int, row: StepRow) -> None:
    """The step waits for a person; an approval that no longer fits is void."""
    step = draft.steps[place]
    handled = row.handled or NOT_HANDLED
    void = handled.approval is not None
    row.handled = msgspec.structs.replace(handled, approval=None)
    draft.move(place, row, AWAITING_APPROVAL)
    people = draft.head.people or NOBODY
    draft.head.people = msgspec.structs.replace(
        people, awaiting=tuple(dict.fromkeys((*people.awaiting, place)))
    )
    detail = step.risk_reason or f"undone by {step.compensate}"
    if void:
        detail = f"plan or values have moved since it was approved; {detail}"
    row.due_ms = publish(draft, place, APPROVAL, f"risk:{step.risk}", detail)


def approve(draft: Draft, place: int, row: StepRow, by: str) -> None:
    """The step may run as it is now."""
    approval = Approval(approval_digest(draft, place), by, draft.now.log_ms)
    row.handled = msgspec.structs.replace(row.handled or NOT_HANDLED, approval=approval)


def awaits_no_more(draft: Draft, place: int) -> None:
    """The step no longer awaits an approval."""
    people = draft.head.people
    if people is not None and place in people.awaiting:
        left = tuple(each for each in people.awaiting if each != place)
        draft.head.people = msgspec.structs.replace(people, awaiting=left)


def recheck_approvals(draft: Draft) -> None:
    """Asks again wherever what was shown has moved in this unit, so that nobody reads old values.

    The check at dispatch does not rest on this one.
    """
    people = draft.head.people
    if people is None:
        return
    for place in people.awaiting:
        row = draft.peek(place)
        ask = row.handled.ask if row.handled is not None else None
        if ask is not None and row.state is AWAITING_APPROVAL and moved(draft, place, ask):
            row = draft.row(place)
            row.due_ms = ask_again(draft, place, ask)
