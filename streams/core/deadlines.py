"""The next deadlines of a run, from its rows and its header."""

from __future__ import annotations

from heapq import heapify, heappop
from typing import Final

from dalsegno.schemas.outputs import RunState
from dalsegno.streams.core.rows import engine_gives
from dalsegno.streams.core.runstate import (
    ASKING,
    BACKING,
    BLOCKED,
    FLYING,
    NEVER,
    Run,
)
from dalsegno.streams.core.step_table import READY

# A heap is thinned when it holds this many entries more than twice the deadlines there are.
_SLACK: Final = 16

_QUARANTINED: Final = RunState.QUARANTINED

# The place of a deadline of the run itself, ahead of those of its steps.
RUN_TTL: Final = -2
RUN_GATE: Final = -1


def first_log(run: Run) -> tuple[int, int]:
    """The run's first deadline on log time, and the step's place (or RUN_TTL, RUN_GATE)."""
    head = run.head
    due, place = NEVER, RUN_TTL
    if not head.clock_stopped_ms:
        due = head.expires_ms
    if head.state is _QUARANTINED:
        return due, place
    if head.gate_due_ms and head.gate_due_ms < due:
        due, place = head.gate_due_ms, RUN_GATE
    if run.logs:
        top = _top(run, run.logs, live=False)
        if top is not None and top[0] < due:
            return top
    return due, place


def first_live(run: Run) -> tuple[int, int]:
    """The run's first deadline on live time, and the step's place."""
    if run.lives and run.head.state is not _QUARANTINED:
        top = _top(run, run.lives, live=True)
        if top is not None:
            return top
    return NEVER, RUN_TTL


def refresh(run: Run) -> None:
    """Notes both deadlines on the run. The common case first: the top of the heap is fresh."""
    head = run.head
    if run.logs or head.gate_due_ms or head.clock_stopped_ms:
        run.log_due = first_log(run)[0]
    else:
        run.log_due = head.expires_ms
    lives = run.lives
    if lives:
        due, place = lives[0]
        row = run.rows[place]
        if row.due_ms == due and row.live and head.state is not _QUARANTINED:
            run.live_due = due
            return
    run.live_due = first_live(run)[0]


def rebuild(run: Run) -> None:
    """Derives the run's heaps from its rows: after a restore, or when a unit was discarded."""
    run.logs = [(r.due_ms, i) for i, r in enumerate(run.rows) if r.due_ms and not r.live] or None
    run.lives = [(r.due_ms, i) for i, r in enumerate(run.rows) if r.due_ms and r.live] or None
    if run.logs:
        heapify(run.logs)
    if run.lives:
        heapify(run.lives)
    steps = run.entry.steps
    run.ready = [
        i for i, r in enumerate(run.rows) if r.state is READY and engine_gives(steps[i], r)
    ] or None
    refresh(run)


def _top(run: Run, heap: list[tuple[int, int]], *, live: bool) -> tuple[int, int] | None:
    rows = run.rows
    if len(heap) > _SLACK:
        tally = run.head.tally
        waiting = tally[FLYING] + tally[BACKING] + tally[BLOCKED] + tally[ASKING]
        if len(heap) > _SLACK + 2 * waiting:
            fresh = {(due, p) for due, p in heap if rows[p].due_ms == due and rows[p].live is live}
            heap[:] = sorted(fresh)
    while heap:
        top = heap[0]
        row = rows[top[1]]
        if row.due_ms == top[0] and row.live is live:
            return top
        heappop(heap)
    return None
