"""A run turns round: from here on it takes back what it has done, or may have done.

Forward recovery comes first: a step's budgets are used up before its failure counts as one for
good. Then the run goes back if its plan says so (`on_failure`), if a person says so, when its time
to live is over, or when it is cancelled; not once a pivot is passed.
"""

from __future__ import annotations

import msgspec

from dalsegno.schemas.outputs import AnswerType, RunState
from dalsegno.streams.core.attempts import close
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.ending import stop_attempts
from dalsegno.streams.core.names import DETAIL_CHARS_MAX
from dalsegno.streams.core.rows import StepRow
from dalsegno.streams.core.runstate import FLYING, NEVER
from dalsegno.streams.core.saga.looking import foresee
from dalsegno.streams.core.saga.planning import UndoPlan
from dalsegno.streams.core.saga.state import Saga
from dalsegno.streams.core.saga.taking_back import release
from dalsegno.streams.core.saga.turning import plan_goes_back
from dalsegno.streams.core.step_table import (
    COMPENSATING,
    COMPLETED,
    FINAL_STEPS,
    SKIPPED,
    StepInput,
)


def give_up(draft: Draft, cause: str, detail: str = "") -> bool:
    """The run cannot reach its goal: it goes back where its plan says so. False: it does not.

    With nothing to take back, the run is compensated at once.
    """
    if not plan_goes_back(draft):
        return False
    begin(draft, foresee(draft), cause, detail)
    return True


def end_or_go_back(draft: Draft, cause: str, detail: str = "") -> bool:
    """The run is to end from outside: it goes back first, where its plan says so and there is
    something to take back. False: it may just end.
    """
    if not plan_goes_back(draft):
        return False
    undo = foresee(draft)
    if not undo.busy:
        return False
    begin(draft, undo, cause, detail)
    return True


def begin(draft: Draft, undo: UndoPlan, cause: str, detail: str) -> None:
    """Stops what goes forward, and lets the first compensations go. Walks the steps, once."""
    head = draft.head
    draft.reason = "compensating"
    draft.facts = True
    if head.tally[FLYING]:
        stop_attempts(draft, AnswerType.CANCELLED)
    busy = undo.busy
    for place in draft.plan.order:
        row = draft.row(place)
        _stop(draft, place, row, busy=place in busy)
        row.needs = undo.held[place]
    head.state = RunState.COMPENSATING
    head.saga = Saga(cause, detail[:DETAIL_CHARS_MAX], draft.now.log_ms)
    head.left = len(busy)
    head.plan_open = False
    head.missing = ()
    head.gate, head.gate_due_ms = "", 0
    if head.people is not None:
        # Its package asks nothing any more.
        head.people = msgspec.structs.replace(head.people, gate=None)
    # Budgets and people's deadlines bound what is left to do; its end is never just time.
    head.clock_stopped_ms, head.expires_ms = 0, NEVER
    for place in sorted(busy):
        if undo.held[place] == 0:
            release(draft, place)


def _stop(draft: Draft, place: int, row: StepRow, *, busy: bool) -> None:
    if row.state is COMPLETED:
        if busy:
            row.closed = StepInput.COMPLETED
            draft.move(place, row, COMPENSATING)
        return
    if row.flight is not None or not row.closed:
        close(row, StepInput.UNDO)
    if busy:
        draft.move(place, row, COMPENSATING)
    elif row.state not in FINAL_STEPS:
        draft.move(place, row, SKIPPED)
