"""Deadlines of questions to people: reminders until the answer is due, then the stated outcome."""

from __future__ import annotations

from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.lifecycle import fail_run
from dalsegno.streams.core.people.asking import remind_or_none
from dalsegno.streams.core.rows import StepRow

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
    """A deadline of the run's gate; as for a step."""
    people = draft.head.people
    due = remind_or_none(draft, None, people.gate if people is not None else None)
    if due is None:
        _unanswered(draft)
        return False
    draft.head.gate_due_ms = due
    return True


def _unanswered(draft: Draft) -> None:
    fail_run(draft, NOBODY_ANSWERED)
