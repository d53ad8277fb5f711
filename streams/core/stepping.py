"""Timers of a run and its steps."""

from __future__ import annotations

from typing import Final

from dalsegno.streams.core.attempts import start_limit_passed
from dalsegno.streams.core.deadlines import RUN_GATE, RUN_TTL
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.fired import Fired
from dalsegno.streams.core.lifecycle import expire_run
from dalsegno.streams.core.people.silence import answer_due, gate_due
from dalsegno.streams.core.recovery.seeking import overdue
from dalsegno.streams.core.routing import infra_fault, retry_due
from dalsegno.streams.core.rows import StepRow
from dalsegno.streams.core.step_table import BACKING_OFF, DISPATCHED, RUNNING, StepInput

_TTL: Final = Fired("ttl")
_GATE: Final = Fired("answer_by")
_REMINDER: Final = Fired("reminder")


def fire(draft: Draft, place: int) -> Fired:
    """Fires the deadline at a place (see `deadlines`)."""
    if place == RUN_TTL:
        expire_run(draft)
        return _TTL
    if place == RUN_GATE:
        return _REMINDER if gate_due(draft) else _GATE
    row = draft.row(place)
    row.due_ms = 0
    epoch = row.epoch
    return Fired(_fire_step(draft, place, row), draft.steps[place].name, epoch)


def _fire_step(draft: Draft, place: int, row: StepRow) -> str:
    if row.state is DISPATCHED:
        return _start_limit(draft, place, row)
    if row.state is RUNNING:
        limit = draft.steps[place].timeout_ms
        infra_fault(draft, place, row, StepInput.TIMEOUT, f"longer than {limit} ms")
        return "timeout"
    if row.state is BACKING_OFF:
        retry_due(draft, place, row)
        return "retry"
    if overdue(draft, place, row):
        return "supplier_wait"
    return "reminder" if answer_due(draft, place, row) else "answer_by"


def _start_limit(draft: Draft, place: int, row: StepRow) -> str:
    flight = row.flight
    assert flight is not None, "a dispatched step has a flight"
    certain_ms = flight.start_by_ms + draft.now.policy.start_margin_ms
    if draft.now.log_ms < certain_ms:
        # Live time is over, but a start that was appended in time could still come by log time.
        row.due_ms, row.live = certain_ms, False
        return ""
    start_limit_passed(draft, place, row)
    return "start_limit"
