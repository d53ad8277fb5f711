"""The ways on that a package offers, and why those that it does not offer are not available.

Decisions are judged by the same list: what was not available cannot be decided.
"""

from __future__ import annotations

from typing import Final

from dalsegno.schemas.control import DecisionType
from dalsegno.schemas.package import Option
from dalsegno.schemas.plan import StepRole
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.saga.looking import foresee
from dalsegno.streams.core.saga.turning import plan_goes_back, refusal
from dalsegno.streams.core.step_table import COMPLETED, FINAL_STEPS

# Names of steps that one option lists; the sentence says how many there are.
STEPS_SHOWN_MAX: Final = 20
FIELDS_NEEDED_MAX: Final = 64
# What is asked of a person.
DECISION: Final = "decision"
INFORMATION: Final = "information"
APPROVAL: Final = "approval"
GATE: Final = "gate"
ASIDE: Final = "aside"
NOTICE: Final = "notice"

_BY_HAND: Final = "no compensation of the plan takes this back: do it by hand, then skip"
_NOT_ASKED: Final = {
    NOTICE: "this is a notice: nothing is asked",
    ASIDE: "our own code raised on this run: it goes on whole, or it ends",
    GATE: "the question is about the run as a whole, not about one step",
}


def options(
    draft: Draft, place: int | None, asked: str, missing: tuple[str, ...]
) -> tuple[Option, ...]:
    """Every decision that there is, in a fixed order, with what it would do now."""
    done = _completed(draft)
    name = "" if place is None else draft.steps[place].name
    return (
        _retry(draft, place, asked, missing, done),
        _supply(asked, name, missing, done),
        _edit(draft, place, asked, done),
        _skip(draft, place, asked, done),
        _compensate(draft, asked),
        _approve(asked, name, done),
        _reject(draft, asked, name),
        _cancel(draft, asked, done),
    )


def _completed(draft: Draft) -> tuple[str, ...]:
    return tuple(
        draft.steps[place].name
        for place, old in enumerate(draft.run.rows)
        if draft.rows.get(place, old).state is COMPLETED
    )


def _of(
    decision: DecisionType,
    text: str,
    why_not: str = "",
    *,
    redoes: tuple[str, ...] = (),
    keeps: tuple[str, ...] = (),
    undoes: tuple[str, ...] = (),
    reversible: bool = False,
    needs: tuple[str, ...] = (),
) -> Option:
    return Option(
        decision=decision,
        text=text,
        why_not=why_not,
        redoes=redoes[:STEPS_SHOWN_MAX],
        keeps=keeps[:STEPS_SHOWN_MAX],
        undoes=undoes[:STEPS_SHOWN_MAX],
        reversible=reversible,
        needs=needs[:FIELDS_NEEDED_MAX],
    )


def _retry(
    draft: Draft,
    place: int | None,
    asked: str,
    missing: tuple[str, ...],
    done: tuple[str, ...],
) -> Option:
    kind = DecisionType.RETRY
    name = "" if place is None else draft.steps[place].name
    if asked == ASIDE:
        text = "The run goes on as it was before our code raised; the events that wait are applied."
        return _of(kind, text, keeps=done)
    text = f"Step {name} runs again with new attempts, under the same keys for its effects."
    why_not = _NOT_ASKED.get(asked, "")
    if asked == INFORMATION and missing:
        why_not = "without the missing fields the step cannot run: supply them"
    elif asked == APPROVAL:
        why_not = "the step has not run: approve or reject it"
    elif not why_not and place is not None and by_hand_only(draft, place):
        why_not = _BY_HAND
    return _of(kind, text, why_not, redoes=(name,) if name else (), keeps=done)


def _supply(asked: str, name: str, missing: tuple[str, ...], done: tuple[str, ...]) -> Option:
    text = f"The missing fields come with the decision, and step {name} goes on."
    why_not = _NOT_ASKED.get(asked, "")
    if not why_not and asked != INFORMATION:
        why_not = "no field is missing"
    elif not why_not and not missing:
        why_not = "the step did not say which fields are missing"
    return _of(
        DecisionType.SUPPLY,
        text,
        why_not,
        redoes=(name,) if name else (),
        keeps=done,
        reversible=True,
        needs=missing,
    )


def editable(draft: Draft, place: int) -> tuple[str, ...]:
    """Fields that a person may change in answer to a package about this step: what it reads."""
    return draft.steps[place].reads


def _edit(draft: Draft, place: int | None, asked: str, done: tuple[str, ...]) -> Option:
    if place is None:
        return _of(DecisionType.EDIT, "Fields of the context change.", _NOT_ASKED[asked])
    step = draft.steps[place]
    fields = editable(draft, place)
    text = f"Fields that step {step.name} reads change by your hand, and the step runs again."
    why_not = _NOT_ASKED.get(asked, "")
    if asked == APPROVAL:
        text = f"Fields that step {step.name} reads change, and its approval is asked anew."
    if not why_not and by_hand_only(draft, place):
        why_not = _BY_HAND
    if not why_not and not fields:
        why_not = "the step reads no field"
    return _of(
        DecisionType.EDIT,
        text,
        why_not,
        redoes=(step.name,),
        keeps=done,
        reversible=True,
        needs=fields,
    )


def needed_of_skipped(draft: Draft, place: int) -> tuple[str, ...]:
    """Fields that the step should have written, that are missing, and that a later step reads."""
    writes = draft.plan.writes[place]
    absent = [
        name
        for name in (*draft.steps[place].writes, *draft.steps[place].may_write)
        if draft.context.get(name) is None
    ]
    if not absent:
        return ()
    read = {
        name
        for at, old in enumerate(draft.run.rows)
        if at != place and draft.rows.get(at, old).state not in FINAL_STEPS
        for name in draft.steps[at].reads
        if name in writes
    }
    return tuple(name for name in absent if name in read)


def _skip(draft: Draft, place: int | None, asked: str, done: tuple[str, ...]) -> Option:
    kind = DecisionType.SKIP
    if place is None:
        return _of(kind, "A step is left out.", _NOT_ASKED[asked])
    step = draft.steps[place]
    if draft.head.saga is not None:
        text = f"You have taken back by hand what step {step.name} was to take back."
        return _of(kind, text, _NOT_ASKED.get(asked, ""), keeps=done)
    needs = needed_of_skipped(draft, place)
    text = f"Step {step.name} is left out and the steps behind it go on."
    if needs:
        text = f"Step {step.name} is left out; what later steps read of it comes with the decision."
    return _of(kind, text, _NOT_ASKED.get(asked, ""), keeps=done, needs=needs)


def by_hand_only(draft: Draft, place: int) -> bool:
    """Whether a person is asked to take back what no compensation can."""
    return draft.head.saga is not None and draft.steps[place].role is StepRole.FORWARD


def _compensate(draft: Draft, asked: str) -> Option:
    why_not = _NOT_ASKED.get(asked, "") if asked != GATE else ""
    return _of(
        DecisionType.COMPENSATE,
        "What the run has done, or may have done, is undone in reverse order, and the run ends.",
        why_not or refusal(draft),
        undoes=_undone(draft),
    )


def _approve(asked: str, name: str, done: tuple[str, ...]) -> Option:
    if asked == GATE:
        return _of(
            DecisionType.APPROVE,
            "The gate opens and the run's further steps may start.",
            keeps=done,
        )
    text = f"Step {name} runs, with exactly the values shown here."
    why_not = "" if asked == APPROVAL else _NOT_ASKED.get(asked, "no approval is asked")
    return _of(DecisionType.APPROVE, text, why_not, redoes=(name,) if name else (), keeps=done)


def _reject(draft: Draft, asked: str, name: str) -> Option:
    what = f"Step {name} does not run" if name else "The run does not go on"
    goes_back = plan_goes_back(draft)
    if goes_back:
        text = f"{what}; what the run has done is undone."
    elif draft.head.saga is not None:
        text = f"{what} and the run ends as failed; what is not taken back yet stays as it is."
    else:
        text = f"{what} and the run ends as failed; what it has done stays."
    why_not = "" if asked in {APPROVAL, GATE} else _NOT_ASKED.get(asked, "no approval is asked")
    undoes = _undone(draft) if goes_back else ()
    return _of(DecisionType.REJECT, text, why_not, undoes=undoes)


def _undone(draft: Draft) -> tuple[str, ...]:
    """Steps that would be taken back now, the last one first."""
    busy = foresee(draft).busy
    return tuple(draft.steps[place].name for place in reversed(draft.plan.order) if place in busy)


def _cancel(draft: Draft, asked: str, done: tuple[str, ...]) -> Option:
    why_not = _NOT_ASKED[NOTICE] if asked == NOTICE else ""
    text = "The run ends as cancelled; attempts under way are told to stop, and nothing is undone."
    if draft.head.saga is not None:
        text = "The run ends as failed; what has not been taken back yet stays as it is."
    return _of(DecisionType.CANCEL, text, why_not, keeps=done)
