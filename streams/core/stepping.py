"""Timers of steps."""

from __future__ import annotations

from dalsegno.streams.core.attempts import start_limit_passed
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.lifecycle import fail_run
from dalsegno.streams.core.routing import infra_fault, retry_due
from dalsegno.streams.core.step_table import BACKING_OFF, DISPATCHED, RUNNING, StepInput


def fire_step(draft: Draft, place: int) -> tuple[str, str, int]:
    """Fires the deadline of a step: (name of the timer, step, epoch). An empty name: nothing moved."""
    row = draft.row(place)
    step = draft.plan.steps[place]
    row.due_ms = 0
    epoch = row.epoch
    if row.state is DISPATCHED:
        return _start_limit(draft, place), step.name, epoch
    if row.state is RUNNING:
        infra_fault(draft, place, row, StepInput.TIMEOUT, f"longer than {step.timeout_ms} ms")
        return "timeout", step.name, epoch
    if row.state is BACKING_OFF:
        retry_due(draft, place, row)
        return "retry", step.name, epoch
    fail_run(draft, "nobody_answered")
    return "answer_by", step.name, epoch


def _start_limit(draft: Draft, place: int) -> str:
    row = draft.row(place)
    flight = row.flight
    assert flight is not None, "a dispatched step has a flight"
    certain_ms = flight.start_by_ms + draft.now.policy.start_margin_ms
    if draft.now.log_ms < certain_ms:
        # Live time is over, but a start that was appended in time could still come by log time.
        row.due_ms, row.live = certain_ms, False
        return ""
    start_limit_passed(draft, place, row)
    return "start_limit"
