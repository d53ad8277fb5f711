"""Deadlines of questions to people: reminders until the answer is due, then the stated outcome."""

from __future__ import annotations

from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.escalating import gate_step
from dalsegno.streams.core.lifecycle import fail_run
from dalsegno.streams.core.people.asking import remind_or_none
from dalsegno.streams.core.rows import StepRow
from dalsegno.streams.core.step_table import ESCALATED

NOBODY_ANSWERED = "nobody_answered"


def answer_due(draft: Draft, place: int, row: StepRow) -> bool:
    """A deadline of a step's question. True: it was a reminder; False: nobody has answered."""
    due = remind_or_none(draft, place, row.handled.ask if row.handled is not None else None)
    if due is None:
        _unanswered(draft)
        return False
    row.due_ms = due
    return True


def gate_due(draft: Draft) -> bool:
    """A deadline of the run's gate; as for a step.

    A gate that an unsafe step closed has no question of its own: it waits as long as the step's.
    """
    people = draft.head.people
    gate = people.gate if people is not None else None
    if gate is None and (until_ms := _steps_answer_by(draft)) > draft.now.log_ms:
        draft.head.gate_due_ms = until_ms
        return True
    due = remind_or_none(draft, None, gate)
    if due is None:
        _unanswered(draft)
        return False
    draft.head.gate_due_ms = due
    return True


def _steps_answer_by(draft: Draft) -> int:
    """Until when the step that closed the gate is asked about; 0 when it is not."""
    place = gate_step(draft)
    row = None if place is None else draft.peek(place)
    if row is None or row.state is not ESCALATED or row.handled is None or row.handled.ask is None:
        return 0
    return row.handled.ask.answer_by_ms


def _unanswered(draft: Draft) -> None:
    fail_run(draft, NOBODY_ANSWERED)
