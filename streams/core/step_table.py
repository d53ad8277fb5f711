"""The table of a step: in every state, what each report, verdict and timer does.

Rules that hold before the table is asked:

1. A report of an epoch below the step's is superseded; one above it is refused (`unknown_epoch`).
2. An epoch is open from its dispatch until something closes it. A report of a closed epoch is
   superseded, but the repeat of the very report that closed it is a duplicate.
3. A step that its service runs by itself (no queue) reports epoch 0 and an attempt number; a lower
   one is superseded, a higher one replaces it. After a redispatch epoch 0 is superseded.
4. Effects are answered by the journal: their entries survive the attempt, whatever the table says.

The table says the outcome of an input for the open epoch, and where the step may go. `to` is empty
when the state stays. What the fold does is checked against it (`MOVES`): a move that no rule allows
is a broken invariant.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from dalsegno.schemas.outputs import Outcome, StepState

PENDING, READY, HELD = StepState.PENDING, StepState.READY, StepState.HELD
DISPATCHED, RUNNING = StepState.DISPATCHED, StepState.RUNNING
BACKING_OFF, MISSING_INFO = StepState.BACKING_OFF, StepState.MISSING_INFO
AWAITING_APPROVAL, ESCALATED = StepState.AWAITING_APPROVAL, StepState.ESCALATED
COMPLETED, SKIPPED = StepState.COMPLETED, StepState.SKIPPED
COMPENSATING, COMPENSATED = StepState.COMPENSATING, StepState.COMPENSATED


class StepInput(StrEnum):
    """What can happen to a step."""

    STARTED = "StepStarted"
    PROGRESSED = "StepProgressed"
    COMPLETED = "StepCompleted"
    FAILED = "StepFailed"
    RELEASED = "StepReleased"
    INTENDED = "EffectIntended"
    CONFIRMED = "EffectConfirmed"
    LOST = "lost"
    SILENT = "silent"
    STUCK = "stuck"
    REPLACED = "replaced"
    START_LIMIT = "timer:start_limit"
    TIMEOUT = "timer:timeout"
    RETRY = "timer:retry"
    TTL = "timer:ttl"
    ANSWER_BY = "timer:answer_by"
    NEEDS_MET = "needs met"
    DISPATCH = "dispatch"
    INFORMED = "information"
    UNDO = "undo"
    UNDONE = "undone"
    DECIDED = "decision"


class Rule(msgspec.Struct, frozen=True, gc=False):
    """What one input does in one state. `reason` goes with every outcome but applied."""

    outcome: Outcome
    to: tuple[StepState, ...] = ()
    reason: str = ""


def _applied(*to: StepState) -> Rule:
    return Rule(Outcome.APPLIED, to)


def _refused(reason: str) -> Rule:
    return Rule(Outcome.REFUSED, (), reason)


_DUPLICATE: Final = Rule(Outcome.DUPLICATE, (), "repeated")
_CLOSED: Final = Rule(Outcome.SUPERSEDED, (), "epoch_closed")
_COMPLETED: Final = Rule(Outcome.SUPERSEDED, (), "already_completed")
_UNDONE: Final = Rule(Outcome.SUPERSEDED, (), "compensating")
_NOT_STARTED: Final = _refused("not_started")
_STARTED: Final = _refused("already_started")
_NOT_RUNNING: Final = _refused("not_running")
_NOT_ASKED: Final = _refused("not_open")
# A timer or an internal input that no longer fits the state does nothing.
_STALE: Final = Rule(Outcome.DUPLICATE, (), "stale")

_REPORTS: Final = (
    StepInput.STARTED,
    StepInput.PROGRESSED,
    StepInput.COMPLETED,
    StepInput.FAILED,
    StepInput.RELEASED,
    StepInput.INTENDED,
    StepInput.CONFIRMED,
)
_VERDICTS: Final = (StepInput.LOST, StepInput.SILENT, StepInput.STUCK, StepInput.REPLACED)

# Where a closed attempt goes: wait for the next one, or for a person.
_AFTER: Final = (BACKING_OFF, ESCALATED)
# After the loss of a worker, at once too: a compensation, once nothing holds it back any more.
_AFTER_LOSS: Final = (READY, PENDING, *_AFTER)
# Where a step that is being brought back goes when the run's time to live is over.
_OUTLASTED: Final = _applied(ESCALATED)
# Where a dispatch can end when the step cannot be given out.
_GIVEN: Final = (DISPATCHED, MISSING_INFO, ESCALATED, AWAITING_APPROVAL)

# Where a person's decision can take a step.
_DECIDED: Final = (READY, PENDING, SKIPPED)

# Where it takes a step whose run is taken back, once a person has done that by hand. A compensation
# that waits for an approval, or for fields, is completed then, too.
_BY_HAND: Final = (COMPLETED, COMPENSATING)

Table = dict[StepState, dict[StepInput, Rule]]


def _state(reports: Rule, verdicts: Rule, **rules: Rule) -> dict[StepInput, Rule]:
    row = dict.fromkeys(StepInput, _STALE)
    row.update(dict.fromkeys(_REPORTS, reports))
    row.update(dict.fromkeys(_VERDICTS, verdicts))
    row[StepInput.UNDO] = _applied(COMPENSATING, SKIPPED)
    row[StepInput.DECIDED] = _NOT_ASKED
    row.update({StepInput[name]: rule for name, rule in rules.items()})
    return row


def _done() -> dict[StepInput, Rule]:
    return _state(
        _COMPLETED,
        _NOT_RUNNING,
        STARTED=_DUPLICATE,
        PROGRESSED=_DUPLICATE,
        COMPLETED=_DUPLICATE,
        CONFIRMED=_applied(),
        # Another step misses a field that it may write: it is run again for that.
        INFORMED=_applied(READY),
        # A compensation that ran with less than is known by now runs again.
        UNDO=_applied(COMPENSATING, READY),
    )


# Steps that the engine gives to the workers of a queue.
MANAGED: Final[Table] = {
    PENDING: _state(_NOT_STARTED, _NOT_RUNNING, NEEDS_MET=_applied(READY), TTL=_OUTLASTED),
    # Its turn, or a compensation's that something late goes ahead of: then it is pending again.
    READY: _state(_CLOSED, _NOT_RUNNING, DISPATCH=_applied(HELD, PENDING, *_GIVEN), TTL=_OUTLASTED),
    # Its turn: given out, held by something else, or ready again while the run itself holds back.
    HELD: _state(
        _CLOSED,
        _NOT_RUNNING,
        DISPATCH=_applied(HELD, READY, PENDING, *_GIVEN),
        TTL=_OUTLASTED,
    ),
    DISPATCHED: _state(
        _NOT_STARTED,
        _NOT_RUNNING,
        STARTED=_applied(RUNNING),
        RELEASED=_applied(BACKING_OFF),
        LOST=_applied(*_AFTER_LOSS),
        REPLACED=_applied(*_AFTER_LOSS),
        START_LIMIT=_applied(*_AFTER),
        TTL=_OUTLASTED,
    ),
    RUNNING: _state(
        _applied(),
        # What was run again only for a missing field stays completed when that fails.
        _applied(COMPLETED, *_AFTER_LOSS),
        STARTED=_DUPLICATE,
        COMPLETED=_applied(COMPLETED, *_AFTER),
        FAILED=_applied(MISSING_INFO, COMPLETED, *_AFTER),
        RELEASED=_STARTED,
        LOST=_STARTED,
        # Alive, and slow: a person is told, and the step's own timeout decides.
        STUCK=_applied(),
        TIMEOUT=_applied(COMPLETED, *_AFTER),
        TTL=_OUTLASTED,
    ),
    BACKING_OFF: _state(_CLOSED, _NOT_RUNNING, RETRY=_applied(READY, PENDING), TTL=_OUTLASTED),
    MISSING_INFO: _state(
        _CLOSED,
        _NOT_RUNNING,
        INFORMED=_applied(READY),
        DECIDED=_applied(*_DECIDED, COMPLETED),
        ANSWER_BY=_applied(),
        # While nobody has been asked: a person is, as when the supplier's own time is over.
        TTL=_applied(),
    ),
    AWAITING_APPROVAL: _state(
        _CLOSED, _NOT_RUNNING, DECIDED=_applied(*_DECIDED, COMPLETED), ANSWER_BY=_applied()
    ),
    ESCALATED: _state(
        _CLOSED, _NOT_RUNNING, DECIDED=_applied(*_DECIDED, *_BY_HAND), ANSWER_BY=_applied()
    ),
    COMPLETED: _done(),
    COMPENSATING: _state(
        _UNDONE,
        _NOT_RUNNING,
        CONFIRMED=_applied(),
        UNDO=_applied(),
        UNDONE=_applied(COMPENSATED, ESCALATED),
    ),
    COMPENSATED: _state(_UNDONE, _NOT_RUNNING, CONFIRMED=_applied(), UNDO=_applied(COMPENSATING)),
    SKIPPED: _state(_CLOSED, _NOT_RUNNING, UNDO=_applied(COMPENSATING)),
}

_REPORTED: Final[dict[str, Rule]] = {
    "STARTED": _applied(RUNNING),
    "PROGRESSED": _applied(RUNNING),
    "COMPLETED": _applied(COMPLETED, MISSING_INFO, BACKING_OFF, ESCALATED),
    "FAILED": _applied(MISSING_INFO, BACKING_OFF, ESCALATED),
    "INTENDED": _applied(RUNNING),
    "CONFIRMED": _applied(RUNNING),
    "RELEASED": _refused("not_managed"),
    "LOST": _refused("not_managed"),
}

# Where such a step goes for its next attempt: not ahead of what it needs, or to a person.
_AGAIN: Final = (READY, PENDING, ESCALATED)

# Steps that services run by themselves: producers are not ordered among each other, so a report is
# taken as it comes, also ahead of the reports that the step's needs are met.
OBSERVED: Final[Table] = {
    **MANAGED,
    PENDING: _state(
        _NOT_STARTED, _NOT_RUNNING, NEEDS_MET=_applied(READY), TTL=_OUTLASTED, **_REPORTED
    ),
    READY: _state(
        _NOT_STARTED,
        _NOT_RUNNING,
        DISPATCH=_applied(HELD, PENDING, *_GIVEN),
        TTL=_OUTLASTED,
        **_REPORTED,
    ),
    RUNNING: _state(
        _applied(),
        _applied(*_AGAIN),
        STARTED=_DUPLICATE,
        COMPLETED=_applied(COMPLETED, MISSING_INFO, BACKING_OFF, ESCALATED),
        FAILED=_applied(MISSING_INFO, BACKING_OFF, ESCALATED),
        RELEASED=_refused("not_managed"),
        LOST=_refused("not_managed"),
        TIMEOUT=_applied(*_AGAIN),
        TTL=_OUTLASTED,
    ),
    BACKING_OFF: _state(
        _CLOSED, _NOT_RUNNING, RETRY=_applied(*_AGAIN), TTL=_OUTLASTED, **_REPORTED
    ),
    MISSING_INFO: _state(
        _CLOSED,
        _NOT_RUNNING,
        INFORMED=_applied(READY, PENDING),
        DECIDED=_applied(*_DECIDED),
        ANSWER_BY=_applied(),
        TTL=_applied(),
        **_REPORTED,
    ),
    ESCALATED: _state(
        _CLOSED,
        _NOT_RUNNING,
        DECIDED=_applied(*_DECIDED),
        ANSWER_BY=_applied(),
        **_REPORTED,
    ),
}


def _moves() -> dict[StepState, frozenset[StepState]]:
    return {
        state: frozenset(
            to for table in (MANAGED, OBSERVED) for rule in table[state].values() for to in rule.to
        )
        for state in StepState
    }


# Every move that some rule allows, whatever the input.
MOVES: Final = _moves()
FINAL_STEPS: Final = frozenset({COMPLETED, COMPENSATED, SKIPPED})
# A person is asked; whatever takes the step out of these has answered its question, too.
WITH_PEOPLE: Final = frozenset({ESCALATED, MISSING_INFO, AWAITING_APPROVAL})
