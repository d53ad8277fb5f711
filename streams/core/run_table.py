"""The table of a run: in every state, what each event about the run as a whole does.

Rules that hold before the table is asked:

1. An event whose one-shot id the run has seen is a duplicate, in every state.
2. Events of steps go by the step's table while the run is not final; after its end they are
   superseded, and an effect intended after the end is put to a person.
3. While a run is taken back it is `compensating`, also when it waits or is paused: it takes no
   cancel and no extension, and its time to live is over.
4. A quarantined run's events wait; only a cancel and a person's decision are applied.
5. A decision must be the first on its package and bound to what the package showed.

The state between the commands is a function of the run's steps (`settled`): running while
something is in flight or may go, waiting when all that is left waits for something.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from dalsegno.schemas.outputs import Outcome, RunState

_RUNNING, _WAITING, _PAUSED = RunState.RUNNING, RunState.WAITING, RunState.PAUSED
_COMPENSATING, _QUARANTINED = RunState.COMPENSATING, RunState.QUARANTINED
_SUCCEEDED, _FAILED, _CANCELLED = RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED
_COMPENSATED, _EXPIRED = RunState.COMPENSATED, RunState.EXPIRED

FINAL_RUNS: Final = frozenset({_SUCCEEDED, _FAILED, _COMPENSATED, _CANCELLED, _EXPIRED})


class RunInput(StrEnum):
    """What can happen to a run as a whole."""

    STARTED = "RunStarted"
    EXTENDED = "PlanExtended"
    INFORMED = "InformationSupplied"
    FLAGGED = "RiskFlagged"
    PAUSED = "RunPaused"
    RESUMED = "RunResumed"
    CANCELLED = "RunCancelled"
    DECIDED = "DecisionMade"
    STEP = "event of a step"
    EXPIRES = "timer:ttl"
    ANSWER_BY = "timer:answer_by"
    RAISED = "apply raised"


class RunRule(msgspec.Struct, frozen=True, gc=False):
    """What one input does in one state: an outcome, or the event waits."""

    outcome: Outcome | None
    to: tuple[RunState, ...] = ()
    reason: str = ""


WAITS: Final = RunRule(None, (), "quarantined")
_ENDED: Final = RunRule(Outcome.REFUSED, (), "run_ended")
# The same start is a duplicate; a different one is refused. The digest decides.
_START: Final = RunRule(Outcome.DUPLICATE, (), "repeated")
_STALE: Final = RunRule(Outcome.DUPLICATE, (), "stale")
# The run is being taken back: that is its way to an end, and there is no other.
_TURNED: Final = RunRule(Outcome.REFUSED, (), "compensating")
# A step that fails for good can turn the run round; with nothing to take back, that ends it.
_MOVING: Final = (_RUNNING, _WAITING, _SUCCEEDED, _COMPENSATING, _COMPENSATED)
# How a person's decision can end a run.
_BY_PERSON: Final = (_SUCCEEDED, _CANCELLED, _FAILED, _COMPENSATING, _COMPENSATED)


def _applied(*to: RunState) -> RunRule:
    return RunRule(Outcome.APPLIED, to)


def _live(step: RunRule, **rules: RunRule) -> dict[RunInput, RunRule]:
    row = {
        RunInput.STARTED: _START,
        RunInput.EXTENDED: step,
        RunInput.INFORMED: step,
        RunInput.FLAGGED: step,
        RunInput.PAUSED: _applied(_PAUSED),
        RunInput.RESUMED: RunRule(Outcome.REFUSED, (), "not_paused"),
        RunInput.CANCELLED: _applied(_CANCELLED, _COMPENSATING),
        RunInput.DECIDED: _applied(*dict.fromkeys((*step.to, *_BY_PERSON))),
        RunInput.STEP: step,
        # Or it goes on waiting: for a person, when what it waits for outlasts its time to live.
        RunInput.EXPIRES: _applied(_EXPIRED, _COMPENSATING, _WAITING),
        RunInput.ANSWER_BY: _applied(_FAILED, _COMPENSATING, _COMPENSATED),
        RunInput.RAISED: _applied(_QUARANTINED),
    }
    row.update({RunInput[name]: rule for name, rule in rules.items()})
    return row


def _final() -> dict[RunInput, RunRule]:
    row = dict.fromkeys(RunInput, _ENDED)
    row[RunInput.STARTED] = _START
    row[RunInput.STEP] = RunRule(Outcome.SUPERSEDED, (), "run_ended")
    row.update(dict.fromkeys((RunInput.EXPIRES, RunInput.ANSWER_BY, RunInput.RAISED), _STALE))
    return row


RUN_TABLE: Final[dict[RunState, dict[RunInput, RunRule]]] = {
    _RUNNING: _live(_applied(*_MOVING)),
    _WAITING: _live(_applied(*_MOVING)),
    _PAUSED: _live(
        _applied(_SUCCEEDED, _COMPENSATED),
        PAUSED=RunRule(Outcome.REFUSED, (), "already_paused"),
        RESUMED=_applied(*_MOVING),
    ),
    _COMPENSATING: _live(
        _applied(_COMPENSATED, _WAITING),
        EXTENDED=_TURNED,
        CANCELLED=_TURNED,
        DECIDED=_applied(_COMPENSATED, _WAITING, _FAILED),
        # What is left waits for fault points, and has done so for a whole time to live.
        EXPIRES=_applied(_WAITING),
        ANSWER_BY=_applied(_FAILED),
    ),
    _QUARANTINED: {
        RunInput.STARTED: _START,
        RunInput.EXTENDED: WAITS,
        RunInput.INFORMED: WAITS,
        RunInput.FLAGGED: WAITS,
        RunInput.PAUSED: WAITS,
        RunInput.RESUMED: WAITS,
        RunInput.CANCELLED: _applied(_CANCELLED, _FAILED),
        RunInput.DECIDED: _applied(_PAUSED, *_MOVING, _CANCELLED, _FAILED),
        RunInput.STEP: WAITS,
        RunInput.EXPIRES: _applied(_EXPIRED, _FAILED),
        RunInput.ANSWER_BY: _STALE,
        RunInput.RAISED: _STALE,
    },
    _SUCCEEDED: _final(),
    _FAILED: _final(),
    _COMPENSATED: _final(),
    _CANCELLED: _final(),
    _EXPIRED: _final(),
}

RUN_MOVES: Final[dict[RunState, frozenset[RunState]]] = {
    state: frozenset(to for rule in row.values() for to in rule.to)
    for state, row in RUN_TABLE.items()
}
