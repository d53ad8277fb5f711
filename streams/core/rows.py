"""The row of one step: where it stands, its open attempt, and what is rarely there."""

from __future__ import annotations

import msgspec

from dalsegno.schemas.outputs import StepState
from dalsegno.schemas.plan import RecoverPolicy, StepPlan, StepRole
from dalsegno.streams.core.people.state import Handled
from dalsegno.streams.core.recovery.holding import Repair
from dalsegno.streams.core.saga.state import Undoes


class Flight(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An attempt in flight. `offset`, `index`, `count` are the sequence of its handoff (-1: none).

    `start_by_ms`: a start appended at or after it is refused. `last_offset`: of the attempt's last
    report, which a verdict must have read. `saved`: the attempt has had a save.
    """

    since_ms: int
    start_by_ms: int = 0
    offset: int = -1
    index: int = 0
    count: int = 0
    worker: str = ""
    incarnation: int = 0
    reply_to: str = ""
    progress: int = 0
    last_offset: int = -1
    saved: bool = False


class Past(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What earlier attempts left behind, where there is anything.

    `unstarted`: epochs in a row that nobody started. `expired`: the last such epochs that no one
    was charged for. `progress`: of the attempt before. `missing`: fields that the step waits for.
    `noticed`: one more than the last epoch of which a person was told that it stalled. `saved`: the
    attempt before had a save. `delay_ms`: the last wait before a further attempt, without what a
    dependency asked for. `mismatches`: workers in a row that could not read the context's version.
    """

    unstarted: int = 0
    expired: tuple[int, ...] = ()
    progress: int = 0
    missing: tuple[str, ...] = ()
    reason: str = ""
    detail: str = ""
    noticed: int = 0
    saved: bool = False
    delay_ms: int = 0
    mismatches: int = 0


NO_PAST = Past()


class StepRow(msgspec.Struct, array_like=True, gc=False):
    """One step. `needs`: how many steps it still waits for. `due_ms`: its deadline (0: none), on
    live time if `live`. `epoch`: of its last dispatch; `closed` says what ended it (empty while it
    is open). `failures`, `infra`: what it has used of its two budgets. `attempt`: the service's own
    number, for a step that its service runs by itself. `done`: the run version that its completion
    made. `handled`: what people were asked about it and said. `repair`: while it is hurt or held.
    """

    state: StepState = StepState.PENDING
    needs: int = 0
    epoch: int = 0
    closed: str = ""
    due_ms: int = 0
    live: bool = False
    failures: int = 0
    infra: int = 0
    attempt: int = 0
    flight: Flight | None = None
    past: Past | None = None
    done: int = 0
    handled: Handled | None = None
    undoes: Undoes | None = None
    repair: Repair | None = None


def engine_gives(step: StepPlan, row: StepRow) -> bool:
    """Whether the step's next attempt is the engine's to give out, not its service's to begin.

    A step without a queue is its service's until an attempt of it has ended and the plan says that
    it is dispatched then; from the first dispatch on it stays the engine's.
    """
    if step.queue or row.epoch or step.role is StepRole.COMPENSATION:
        return True
    return bool(row.closed) and step.recover is RecoverPolicy.REDISPATCH


def stays_with_service(step: StepPlan, row: StepRow) -> bool:
    """Whether the attempt in flight is its service's own, and no other ever follows it from here.

    Its reports are taken whatever becomes of it, since nobody else has the step.
    """
    return row.epoch == 0 and step.recover is not RecoverPolicy.REDISPATCH
