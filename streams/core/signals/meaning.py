"""What counts as damage, as an attempt, as a question, for all that read signals off the record."""

from __future__ import annotations

from typing import Final

from dalsegno.schemas.control import StallSuspected
from dalsegno.schemas.events import StepCompleted, StepFailed, StepStarted
from dalsegno.schemas.outputs import Escalation, Outcome, StepChange, StepState, Transition
from dalsegno.streams.core.people.options import NOTICE
from dalsegno.streams.core.step_table import (
    BACKING_OFF,
    COMPENSATED,
    COMPENSATING,
    COMPLETED,
    DISPATCHED,
    ESCALATED,
    MISSING_INFO,
    RUNNING,
    SKIPPED,
)

CONFLICTS: Final = frozenset({Outcome.SUPERSEDED, Outcome.REFUSED})
"""Outcomes of an event that met another state than its sender thought."""

STALL: Final = StallSuspected.__name__
_STARTED: Final = StepStarted.__name__
# A report that ends an attempt; a service's own may be heard of by it first.
_ENDS: Final = frozenset({StepCompleted.__name__, StepFailed.__name__})
# Nothing is to be mended in these: the step is done, or the run goes back over it.
_NOT_HURT: Final = frozenset({COMPLETED, SKIPPED, COMPENSATING, COMPENSATED})
_CANNOT_GO: Final = frozenset({MISSING_INFO, ESCALATED})


def is_damage(change: StepChange, transition: Transition) -> bool:
    """Whether the step has lost an attempt by this, or cannot have one.

    A handoff that nobody started, and that expired or was given back, is no damage: no attempt was
    lost by it. One whose taker died is.
    """
    before, after = change.before, change.after
    if after in _NOT_HURT:
        return False
    if before is RUNNING:
        return after is not RUNNING
    if before is DISPATCHED:
        return transition.cause == STALL
    if after in _CANNOT_GO:
        return True
    return after is BACKING_OFF and transition.cause in _ENDS and change.step == transition.step


def is_mended(change: StepChange) -> bool:
    """Whether the step has come to its completion."""
    return change.after is StepState.COMPLETED and change.before is not StepState.COMPLETED


def is_given_up(change: StepChange) -> bool:
    """Whether the run goes on without the step's completion, or back over it."""
    return change.after in _NOT_HURT and change.after is not StepState.COMPLETED


def begun(transition: Transition) -> str:
    """The step of which this transition begins an attempt, or an empty text.

    A service's own attempt may be heard of first by any of its reports.
    """
    if transition.outcome is not Outcome.APPLIED:
        return ""
    if transition.cause == _STARTED:
        return transition.step
    for change in transition.changes:
        if change.before is not RUNNING:
            ended = transition.cause in _ENDS and change.step == transition.step
            if change.after is RUNNING or ended:
                return change.step
    return ""


def asks(escalation: Escalation) -> bool:
    """Whether a package puts a new question: no notice, and no reminder of an earlier one."""
    return escalation.asked != NOTICE and not escalation.reminder
