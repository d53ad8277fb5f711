"""What waits without an owner, a deadline or a next action (P6). There should be nothing.

A look at one live run by what its rows say, and by what the partition's timers and lines know of
it: a row may have a deadline that no timer will fire, or stand in a line that has lost it.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final, Protocol

import msgspec

from dalsegno.schemas.outputs import RunState
from dalsegno.streams.core.recovery.holding import Holds
from dalsegno.streams.core.rows import StepRow, engine_gives
from dalsegno.streams.core.runstate import FLYING, NEVER, Run
from dalsegno.streams.core.step_table import (
    AWAITING_APPROVAL,
    BACKING_OFF,
    COMPENSATING,
    DISPATCHED,
    ESCALATED,
    FINAL_STEPS,
    HELD,
    MISSING_INFO,
    PENDING,
    READY,
    RUNNING,
)

# Whoever froze it owns it; while clocks stand still it has no deadline, by the policy. So does who
# paused it: a run that is being taken back has no time to live, and waits for them. The line of the
# pace of recovery is served by itself. That a held step stands in its line is seen by the step.
_OWNED: Final = frozenset({"freeze", "turn"})
_DUE: Final = frozenset({DISPATCHED, BACKING_OFF, ESCALATED, AWAITING_APPROVAL, MISSING_INFO})


class Unowned(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Something that nothing will move on. An empty `step`: the run as a whole."""

    run_id: str
    step: str
    state: str
    why: str


class Clocks(Protocol):
    """What the partition's timers know."""

    def knows(self, run_id: str, due_ms: int) -> bool:
        """Whether something will look at the run no later than at `due_ms`."""


def unowned_in(run: Run, holds: Holds, log: Clocks, live: Clocks, width: int) -> list[Unowned]:
    """Everything about a live run that waits for nobody. `width`: attempts that a run may have out.

    Linear in the run's steps.
    """
    found = [
        Unowned(run_id=run.id, step="", state=run.head.state, why=why)
        for why in _of_run(run, log, live)
    ]
    if run.head.state is RunState.QUARANTINED:
        return found
    undone = {place for place, row in enumerate(run.rows) if row.state not in FINAL_STEPS}
    for place in sorted(undone):
        row = run.rows[place]
        why = _of_step(run, place, row, undone=undone, holds=holds, width=width)
        if why:
            name = run.entry.steps[place].name
            found.append(Unowned(run_id=run.id, step=name, state=row.state, why=why))
    return found


def _of_run(run: Run, log: Clocks, live: Clocks) -> list[str]:
    head = run.head
    found = []
    owned = head.waiting_for in _OWNED or bool(head.paused_by)
    if run.log_due == NEVER and run.live_due == NEVER and not owned:
        found.append("no deadline at all")
    if run.log_due != NEVER and not log.knows(run.id, run.log_due):
        found.append("no timer for its log deadline")
    if run.live_due != NEVER and not live.knows(run.id, run.live_due):
        found.append("no timer for its live deadline")
    if head.gate and not head.gate_due_ms:
        found.append("a gate without a deadline for the answer")
    return found


def _of_step(
    run: Run, place: int, row: StepRow, *, undone: Container[int], holds: Holds, width: int
) -> str:
    """Why nothing will move the step on, or an empty text."""
    if row.state in _DUE:
        return "" if row.due_ms else "no deadline"
    if row.state is RUNNING:
        # A service's own attempt that a person was told of stays the service's.
        told = row.past is not None and row.past.noticed
        return "" if row.due_ms or told else "no deadline"
    if row.state is HELD:
        by = "" if row.repair is None else row.repair.by
        line = holds.line(by)
        stands = line is not None and (run.id, place) in line
        return "" if stands else f"in no line; its row says {by!a}"
    if row.state is PENDING:
        needs = run.entry.plan.needs[place]
        waits = run.head.saga is not None or any(need in undone for need in needs)
        return "" if waits or _not_forward(run, place) else "nothing that it needs is still to come"
    if row.state is READY:
        return _of_ready(run, place, row, width)
    assert row.state is COMPENSATING, f"a state without a rule: {row.state}"
    return ""


def _of_ready(run: Run, place: int, row: StepRow, width: int) -> str:
    head = run.head
    if head.paused or head.gate or head.plan_open or head.tally[FLYING] >= width:
        return ""
    if not engine_gives(run.entry.steps[place], row):
        # Its service begins it; the run's time to live is the deadline.
        return ""
    return "ready, and not given out"


def _not_forward(run: Run, place: int) -> bool:
    """A compensation waits for its run to turn round."""
    return place not in run.entry.plan.order
