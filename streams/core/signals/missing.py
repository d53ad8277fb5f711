"""What a troubled run was missing: identity, version, goal, inputs, a usable return, or nothing.

identity: who speaks, and of which run, step, attempt or effect, was not established.
version: it was made on another state, plan, package or schema than the one that stood.
goal: whoever was asked was not told what the step is for, or had to be asked again.
inputs: a field that a step needed was not there, or was of no use.
return: an attempt ended without a result that the run could go on by.
nothing: a failure of a known type that the plan could route, or a worker that was too slow; what
failed lies outside.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final, get_args

import msgspec

from dalsegno.schemas.control import DecisionMade, StallSuspected
from dalsegno.schemas.events import FailureType, StepCompleted, StepFailed, StepReleased
from dalsegno.schemas.outputs import (
    DeadLetter,
    Escalation,
    Outcome,
    RunState,
    StepChange,
    Transition,
)
from dalsegno.streams.core.people.options import APPROVAL, GATE
from dalsegno.streams.core.plan_errors import PlanCode
from dalsegno.streams.core.signals.meaning import CONFLICTS, asks
from dalsegno.streams.core.step_table import COMPLETED, MISSING_INFO


class Missing(StrEnum):
    """What was missing."""

    IDENTITY = "identity"
    VERSION = "version"
    GOAL = "goal"
    INPUTS = "inputs"
    RETURN = "return"
    NOTHING = "nothing"


class Finding(msgspec.Struct, frozen=True, gc=False):
    """One trouble of a run. `offset`: the event that showed it; `why`: codes and words of ours.

    What failures said of themselves is left out: a secret may stand in it.
    """

    missing: Missing
    at_ms: int
    offset: int
    step: str
    epoch: int
    why: str


_WHY_CHARS_MAX: Final = 200
_CODES: Final[dict[Missing, frozenset[str]]] = {
    Missing.VERSION: frozenset(
        {
            "version_conflict", "plan_conflict", "package_moved", "other_package", "not_open",
            "already_decided", "already_paused", "not_paused", "run_ended", "compensating",
            "unknown_schema", "bad_flow", "bad_schema_version",
        }
    ),
    Missing.GOAL: frozenset({"no_reason"}),
    Missing.INPUTS: frozenset(
        {
            *get_args(PlanCode), "bad_ttl", "bad_context", "still_missing", "ops_not_taken",
            "not_available",
        }
    ),
    Missing.NOTHING: frozenset({"start_by_passed"}),
    Missing.RETURN: frozenset(
        {
            "bad_ops", "save_too_large", "result_too_large", "undo_too_large", "bad_frame",
            "bad_body", "trailing_bytes", "too_large", "apply_raised", "output_too_large",
            "quarantined", "too_many_effects", "too_many_requests", "bad_occurrence",
        }
    ),
}  # fmt: skip
# What is in no list is about who speaks: unknown runs, steps and epochs. So is every superseded
# report, whatever it says: its attempt had lost the step.
_BY_CODE: Final = {code: missing for missing, codes in _CODES.items() for code in codes}
# Verdicts that found fresher evidence are the monitor's care, and no trouble of the run.
_OURS: Final = frozenset({StallSuspected.__name__})
_GAVE_NO_RETURN: Final = frozenset({"timer:timeout", StallSuspected.__name__})
_NOBODY_ANSWERED: Final = "timer:answer_by"
_DECISION: Final = DecisionMade.__name__
_NO_WORKER: Final = frozenset({"no_compatible_worker", "version_mismatch"})
# These are asked by the plan's own word: that is no trouble.
_PLANNED: Final = frozenset({APPROVAL, GATE})


def of_letter(letter: DeadLetter) -> Finding:
    """A record of the run that was put aside."""
    return Finding(
        _BY_CODE.get(letter.reason, Missing.IDENTITY),
        letter.at_ms,
        letter.offset,
        "",
        0,
        _why("dead letter", letter.reason),
    )


def of_transition(transition: Transition, event: object) -> Iterator[Finding]:
    """What one transition shows. `event` is what caused it, None for a timer."""
    if transition.outcome in CONFLICTS:
        if transition.cause not in _OURS:
            yield _of_conflict(transition)
        return
    if isinstance(event, StepFailed):
        yield _of_failure(transition, event)
    elif isinstance(event, StepReleased):
        if event.reason in _NO_WORKER:
            yield _found(Missing.VERSION, transition, event.reason, event.detail)
    elif isinstance(event, StepCompleted):
        if not _completes(transition):
            yield _found(Missing.RETURN, transition, transition.reason, transition.detail)
    elif isinstance(event, StallSuspected):
        yield _found(Missing.RETURN, transition, event.verdict, event.evidence)
    elif transition.cause in _GAVE_NO_RETURN:
        yield _found(Missing.RETURN, transition, "", "")
    elif transition.run_state_after is RunState.QUARANTINED:
        yield _found(Missing.RETURN, transition, transition.reason, transition.detail)
    elif any(change.after is MISSING_INFO for change in transition.changes):
        change = next(each for each in transition.changes if each.after is MISSING_INFO)
        yield _found(Missing.INPUTS, transition, "missing_field", "", change)
    elif _ended_badly(transition):
        silent = transition.cause == _NOBODY_ANSWERED
        yield _found(Missing.RETURN if silent else Missing.NOTHING, transition, "", "")


def of_question(escalation: Escalation, *, decided_before: bool) -> Iterator[Finding]:
    """What a package shows. `decided_before`: a person has decided on its cause already."""
    if not asks(escalation) or escalation.asked in _PLANNED:
        return
    if escalation.step and not escalation.goal:
        yield _of_package(escalation, "a person was asked, and the step states no goal")
    elif decided_before:
        yield _of_package(escalation, "a person had decided, and was asked about the same again")


def _of_package(escalation: Escalation, why: str) -> Finding:
    place = (escalation.at_ms, escalation.offset, escalation.step, escalation.epoch)
    return Finding(Missing.GOAL, *place, why)


def _of_failure(transition: Transition, event: StepFailed) -> Finding:
    kind = event.failure_type
    if kind in {FailureType.MISSING_INFO, FailureType.INVALID}:
        missing = Missing.INPUTS
    elif event.error_class or event.message or event.dependency:
        missing = Missing.NOTHING
    else:
        missing = Missing.RETURN
    return _found(missing, transition, kind, ", ".join(event.missing_fields))


def _of_conflict(transition: Transition) -> Finding:
    missing = Missing.IDENTITY
    if transition.outcome is Outcome.REFUSED:
        missing = _BY_CODE.get(transition.reason, missing)
    # A person's words stay where they were said.
    detail = "" if transition.cause == _DECISION else transition.detail
    return _found(missing, transition, transition.reason, detail)


def _completes(transition: Transition) -> bool:
    return any(
        change.step == transition.step and change.after is COMPLETED
        for change in transition.changes
    )


def _ended_badly(transition: Transition) -> bool:
    after = transition.run_state_after
    ended = after in {RunState.FAILED, RunState.EXPIRED} and after != transition.run_state_before
    return ended and transition.outcome is Outcome.APPLIED


def _found(
    missing: Missing,
    transition: Transition,
    code: str,
    detail: str,
    change: StepChange | None = None,
) -> Finding:
    step, epoch = transition.step, transition.epoch
    if change is not None:
        step, epoch = change.step, change.epoch
    return Finding(
        missing,
        transition.at_ms,
        transition.cause_offset,
        step,
        epoch,
        _why(transition.cause, code, detail),
    )


def _why(*words: str) -> str:
    return ": ".join(word for word in dict.fromkeys(words) if word)[:_WHY_CHARS_MAX]
