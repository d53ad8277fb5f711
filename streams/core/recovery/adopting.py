"""What adopting a unit means for recovery: steps enter and leave lines, durations are learned.

Nothing here may fail: the unit stands.
"""

from __future__ import annotations

from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.recovery.state import Recovery
from dalsegno.streams.core.runstate import Run, RunHead, recovering
from dalsegno.streams.core.step_table import HELD


def before_adoption(recovery: Recovery, draft: Draft) -> None:
    """While the run's rows are still as they were before the unit."""
    run, head, holds = draft.run, draft.head, recovery.holds
    for place in dict.fromkeys(draft.held):
        if place < len(run.rows):
            old = run.rows[place]
            if old.state is HELD and old.repair is not None:
                holds.remove(old.repair.by, run.id, place)
        row = draft.rows[place]
        if row.state is HELD and row.repair is not None and head.damage is not None:
            holds.put(row.repair.by, run.id, place, row.repair, head.damage.standing)
    if head.damage is not None:
        holds.restand(run.id, head.damage.standing)
    if draft.took is not None:
        recovery.estimates.observe(head.flow, *draft.took)


def count_pace(recovery: Recovery, log_ms: int, before: RunHead, after: RunHead) -> None:
    """Further attempts went out, or ended."""
    pace = recovery.pace
    change = recovering(after) - recovering(before)
    if change > 0:
        pace.went(log_ms)
    pace.in_flight += change


def put_in_lines(recovery: Recovery, run: Run) -> None:
    """After a restore: the lines are what the rows say."""
    damage = run.head.damage
    if damage is None:
        return
    for place, row in enumerate(run.rows):
        if row.state is HELD and row.repair is not None:
            recovery.holds.put(row.repair.by, run.id, place, row.repair, damage.standing)
