"""Missing facts: who supplies them. A step that may write them, the policy's queue, a person.

1. A step that may write one of the fields and has not completed yet: the asking step waits for it.
2. One that has completed, has touched nothing outside the run, and may write it: it is run again,
   with the fields in its goal, a bounded number of times in a run.
3. The policy's supplier queue: it is given the question as a handoff, and answers with
   `InformationSupplied`. After `supplier_wait_ms` without one a person is asked.
4. A person.

Whoever supplies: the run goes on where it stood.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dalsegno.schemas.outputs import Handoff
from dalsegno.schemas.plan import Risk, StepRole
from dalsegno.streams.core.actions import Dispatch
from dalsegno.streams.core.bounds import utf8_bytes
from dalsegno.streams.core.context_versions import of_fields, versions_bytes
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.effects import recovery_key
from dalsegno.streams.core.escalating import ask_for_fields, wait_for_fields
from dalsegno.streams.core.forms import form, form_bytes
from dalsegno.streams.core.people.asking import UNNAMED, Failure, answered, publish
from dalsegno.streams.core.people.options import INFORMATION
from dalsegno.streams.core.people.package import askable
from dalsegno.streams.core.recovery.holding import Repair
from dalsegno.streams.core.rows import NO_PAST, StepRow
from dalsegno.streams.core.step_table import (
    COMPLETED,
    FINAL_STEPS,
    MISSING_INFO,
    READY,
    RUNNING,
    StepInput,
)

_NONE: Final = Repair()
# What a question holds beside its inputs and the names of fields, as in `dispatch`.
_FRAME_BYTES: Final = 512


def seek(
    draft: Draft,
    place: int,
    row: StepRow,
    missing: tuple[str, ...],
    *,
    reason: str,
    failure: Failure = UNNAMED,
) -> None:
    """The step waits for these fields, from the first in the list above that may have them."""
    fields = askable(missing)
    if not fields or draft.steps[place].role is StepRole.COMPENSATION:
        ask_for_fields(draft, place, row, missing, reason=reason, failure=failure)
        return
    supplier = _supplier(draft, place, fields)
    if supplier is None and not draft.now.policy.supplier_queue:
        ask_for_fields(draft, place, row, missing, reason=reason, failure=failure)
        return
    wait_for_fields(draft, place, row, fields, reason)
    row.due_ms = draft.now.log_ms + draft.now.policy.supplier_wait_ms
    row.flight = None
    answered(row)
    if supplier is None:
        _post(draft, place, row, fields)
    elif draft.peek(supplier).state is COMPLETED:
        _reopen(draft, supplier)


def look_further(draft: Draft, supplier: int) -> None:
    """A step has completed: who waited for it in vain is led to the next in the list."""
    may_write = draft.plan.writes[supplier]
    for place in draft.head.missing:
        row = draft.peek(place)
        if row.state is MISSING_INFO and not was_asked(row) and row.past is not None:
            missing = draft.context.missing(row.past.missing)
            if missing and may_write.intersection(missing):
                _further(draft, place, draft.row(place), missing)


def overdue(draft: Draft, place: int, row: StepRow) -> bool:
    """Nobody has supplied the fields in time: a person is asked. False: one has been already."""
    if row.state is not MISSING_INFO or was_asked(row) or row.past is None:
        return False
    row.due_ms = _ask(draft, place, row, row.past.missing)
    return True


def gave_up(draft: Draft, place: int, row: StepRow) -> bool:
    """A step that was run again only to supply fields has failed: it is completed, as it was."""
    repair = row.repair
    if repair is None or not repair.supplies or row.state is not RUNNING:
        return False
    draft.move(place, row, COMPLETED)
    row.flight = row.past = None
    draft.head.left -= 1
    look_further(draft, place)
    return True


def was_asked(row: StepRow) -> bool:
    """Whether a person has been asked about the step, and has not answered yet."""
    return row.handled is not None and row.handled.ask is not None


def _further(draft: Draft, place: int, row: StepRow, missing: tuple[str, ...]) -> None:
    """The next supplier after one that did not have the fields; the step waits already."""
    now = draft.now
    supplier = _supplier(draft, place, missing, rerun=False)
    if supplier is None and not now.policy.supplier_queue:
        row.due_ms = _ask(draft, place, row, missing)
        return
    row.due_ms = now.log_ms + now.policy.supplier_wait_ms
    if supplier is None:
        _post(draft, place, row, missing)


def _ask(draft: Draft, place: int, row: StepRow, missing: tuple[str, ...]) -> int:
    past = row.past or NO_PAST
    failure = Failure(type="missing_info", message=past.detail, missing=missing)
    return publish(draft, place, INFORMATION, past.reason, past.detail, failure=failure)


def _supplier(
    draft: Draft, place: int, fields: tuple[str, ...], *, rerun: bool = True
) -> int | None:
    """The step that may write the first of the fields that any may; one still to come first."""
    behind = _behind(draft, place)
    wanted = frozenset(fields)
    again: int | None = None
    for other in draft.plan.order:
        if other in behind or not wanted.intersection(draft.plan.writes[other]):
            continue
        state = draft.peek(other).state
        if state not in FINAL_STEPS and state is not MISSING_INFO:
            return other
        if again is None and rerun and state is COMPLETED and _may_run_again(draft, other):
            again = other
    return again


def _behind(draft: Draft, place: int) -> set[int]:
    """The step and all that waits for it: none of these can supply what it waits for."""
    found, stack = {place}, [place]
    while stack:
        for dependent in draft.plan.graph.dependents[stack.pop()]:
            if dependent not in found:
                found.add(dependent)
                stack.append(dependent)
    return found


def _may_run_again(draft: Draft, place: int) -> bool:
    """Only a managed step that acts on nothing outside: no effect is ever done again."""
    step = draft.steps[place]
    if not step.queue or step.risk is not Risk.NONE or step.compensate or step.pivot:
        return False
    if draft.journal(place).effects:
        return False
    used: int = draft.head.reruns
    return used < draft.now.policy.supplier_reruns_max


def _reopen(draft: Draft, place: int) -> None:
    row = draft.row(place)
    row.closed = StepInput.COMPLETED
    row.repair = msgspec.structs.replace(row.repair or _NONE, supplies=True)
    draft.move(place, row, READY)
    draft.head.left += 1
    draft.head.reruns += 1


def hint(draft: Draft, place: int, row: StepRow) -> str:
    """What the goal of a step that is run again says: which fields are wanted, and by whom."""
    if row.repair is None or not row.repair.supplies:
        return ""
    mine = draft.plan.writes[place]
    wanted: dict[str, str] = {}
    for asker in draft.head.missing:
        past = draft.peek(asker).past
        for name in past.missing if past is not None else ():
            if name in mine:
                wanted.setdefault(name, draft.steps[asker].name)
    return "".join(f"\nSupply {field}: step {name} needs it." for field, name in wanted.items())


def _post(draft: Draft, place: int, row: StepRow, fields: tuple[str, ...]) -> None:
    """The question as a handoff: never started, answered with `InformationSupplied`."""
    head, now, step = draft.head, draft.now, draft.steps[place]
    reads = [name for name in step.reads if not draft.context.missing((name,))]
    policy = now.policy
    handoff = Handoff(
        run_id=draft.run.id,
        flow=head.flow,
        flow_version=head.flow_version,
        step=step.name,
        epoch=row.epoch,
        goal=f"Supply {', '.join(fields)}: step {step.name} needs it.",
        inputs=draft.context.pack(reads),
        run_version=head.run_version + draft.facts,
        recovery_key=recovery_key(draft.run.id, step.name),
        dispatched_at_ms=now.log_ms,
        start_by_ms=now.log_ms,
        timeout_ms=policy.supplier_wait_ms,
        heartbeat_ms=step.heartbeat_ms,
        writes=fields,
        context_schema=head.context_schema,
        context_schema_version=head.context_schema_version,
        form=form(draft, fields),
        field_versions=of_fields(head, reads),
    )
    size = _FRAME_BYTES + len(handoff.inputs) + utf8_bytes(handoff.goal)
    size += sum(map(utf8_bytes, fields)) + form_bytes(handoff.form)
    size += versions_bytes(head, reads)
    if size > policy.dispatch_bytes_max:
        # No queue takes it: a person has the fields, or a place where they can be found.
        row.due_ms = _ask(draft, place, row, fields)
        return
    queue = policy.supplier_queue
    now.outbox.put("queue." + queue, Dispatch(queue, handoff, head.trace))
