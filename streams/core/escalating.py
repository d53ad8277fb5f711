"""Puts a step, or a whole run, to a person: it waits with an owner, a deadline and a record."""

from __future__ import annotations

from typing import Final

import msgspec

from dalsegno.schemas.events import FailureType
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.names import DETAIL_CHARS_MAX
from dalsegno.streams.core.people.asking import CHANNEL, UNNAMED, Failure, publish
from dalsegno.streams.core.people.options import ASIDE, DECISION, GATE, INFORMATION, NOTICE
from dalsegno.streams.core.people.package import askable
from dalsegno.streams.core.rows import NO_PAST, StepRow
from dalsegno.streams.core.run_table import FINAL_RUNS
from dalsegno.streams.core.step_table import ESCALATED, MISSING_INFO

__all__ = [
    "CHANNEL",
    "UNSAFE",
    "Failure",
    "ask",
    "ask_for_fields",
    "close_gate",
    "gate_step",
    "notice",
    "open_gate",
    "put_aside",
    "recheck_gate",
    "wait_for_fields",
]

# A gate's name begins so when a step closed it that failed as unsafe; the step's name follows.
UNSAFE: Final = "unsafe:"


def ask(
    draft: Draft,
    place: int,
    row: StepRow,
    *,
    reason: str,
    detail: str,
    failure: Failure = UNNAMED,
) -> None:
    """The step waits for a person's decision until the policy's `person_wait_ms` has passed."""
    row.past = msgspec.structs.replace(
        row.past or NO_PAST, reason=reason, detail=detail[:DETAIL_CHARS_MAX]
    )
    draft.move(place, row, ESCALATED)
    row.due_ms = publish(draft, place, DECISION, reason, detail, failure=failure)
    row.flight = None


def ask_for_fields(
    draft: Draft,
    place: int,
    row: StepRow,
    missing: tuple[str, ...],
    *,
    reason: str,
    failure: Failure = UNNAMED,
) -> None:
    """The step waits until these context fields are there.

    Names that no field can have are left out, and all beyond the first 64.
    """
    missing = askable(missing)
    detail = wait_for_fields(draft, place, row, missing, reason)
    failure = msgspec.structs.replace(failure, type="missing_info", missing=missing)
    row.due_ms = publish(draft, place, INFORMATION, reason, detail, failure=failure)
    row.flight = None


def wait_for_fields(
    draft: Draft, place: int, row: StepRow, fields: tuple[str, ...], reason: str
) -> str:
    """The step stands back for these fields, whoever supplies them; the caller sets until when.

    Returns what is said of it.
    """
    detail = ("missing: " + ", ".join(fields))[:DETAIL_CHARS_MAX]
    row.past = msgspec.structs.replace(
        row.past or NO_PAST, missing=fields, reason=reason, detail=detail
    )
    draft.move(place, row, MISSING_INFO)
    head = draft.head
    if place not in head.missing:
        head.missing = (*head.missing, place)
    return detail


def notice(draft: Draft, place: int, reason: str, detail: str) -> None:
    """A person is told; the step stays as it is."""
    publish(draft, place, NOTICE, reason, detail)


def close_gate(draft: Draft, gate: str, detail: str, *, told: bool = False) -> None:
    """No further step of the run starts until a person agrees. `told`: a person has been asked."""
    head = draft.head
    if head.gate or head.saga is not None:
        # Compensations are no further steps: nothing that a gate is for.
        return
    head.gate = gate
    head.gate_due_ms = draft.now.log_ms + draft.now.policy.person_wait_ms
    draft.facts = True
    if not told:
        head.gate_due_ms = publish(draft, None, GATE, gate, detail)


def gate_step(draft: Draft) -> int | None:
    """The step that closed the gate because it was unsafe; None for any other gate, or none."""
    gate = draft.head.gate
    return draft.plan.index.get(gate.removeprefix(UNSAFE)) if gate.startswith(UNSAFE) else None


def recheck_gate(draft: Draft) -> None:
    """Asks about the gate itself once its unsafe step went on by its service alone.

    Nobody has decided on that step, and its own question cannot be answered any more.
    """
    head, place = draft.head, gate_step(draft)
    ends = head.left == 0 and not head.plan_open
    asked = head.people is not None and head.people.gate is not None
    if place is None or ends or asked or head.state in FINAL_RUNS:
        return
    if draft.peek(place).state is not ESCALATED:
        detail = f"step {draft.steps[place].name} was unsafe and went on without a decision"
        head.gate_due_ms = publish(draft, None, GATE, head.gate, detail)


def open_gate(draft: Draft, but: int | None = None) -> None:
    """The gate's question is answered; what also asked for one meanwhile closes it again.

    `but`: the step whose question it was. Flags that were raised while an unsafe step held the gate
    have not been asked about; those from before it are asked about once more rather than never.
    """
    head = draft.head
    answered, head.gate, head.gate_due_ms = head.gate, "", 0
    draft.facts = True
    for place, step in enumerate(draft.steps):
        row = draft.peek(place)
        unsafe = row.past is not None and row.past.reason == FailureType.UNSAFE
        if place != but and row.state is ESCALATED and unsafe:
            detail = row.past.detail if row.past else ""
            close_gate(draft, f"{UNSAFE}{step.name}", detail, told=True)
            return
    if answered.startswith(UNSAFE):
        gated = [flag for flag in head.flags if flag in draft.plan.plan.gates]
        if gated:
            flag = gated[0]
            close_gate(draft, f"flag:{flag}", f"the run carries the risk flag {flag!a}")


def put_aside(draft: Draft, what: str) -> None:
    """The fold raised on the run: it stays as it was until a person decides, or it expires."""
    publish(draft, None, ASIDE, "quarantined", what, answer_by_ms=draft.head.expires_ms)
