"""Puts a step, or a whole run, to a person: it waits with an owner, a deadline and a record."""

from __future__ import annotations

from itertools import accumulate

import msgspec

from dalsegno.schemas.outputs import EffectStatus, Escalation, JournalEntry
from dalsegno.streams.core.actions import Escalate
from dalsegno.streams.core.bounds import entry_bytes, words
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.names import DETAIL_CHARS_MAX, name_fault
from dalsegno.streams.core.rows import NO_PAST, StepRow
from dalsegno.streams.core.step_table import ESCALATED, MISSING_INFO

CHANNEL = "escalations"
# Fields that one step can ask for at a time.
MISSING_MAX = 64
# Results of effects beyond it are left out of an escalation; then entries beyond it, and counted.
_EFFECTS_BYTES_MAX = 262_144


class Failure(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is known of a failure when it is put to a person."""

    type: str = ""
    error_class: str = ""
    message: str = ""
    missing: tuple[str, ...] = ()
    advice: str = ""


_UNNAMED = Failure()


class _Asked(msgspec.Struct, frozen=True, gc=False):
    """What is asked, and why."""

    asked: str
    reason: str
    detail: str
    failure: Failure = _UNNAMED


def ask(
    draft: Draft,
    place: int,
    row: StepRow,
    *,
    reason: str,
    detail: str,
    failure: Failure = _UNNAMED,
) -> None:
    """The step waits for a person's decision until the policy's `person_wait_ms` has passed."""
    row.past = msgspec.structs.replace(
        row.past or NO_PAST, reason=reason, detail=detail[:DETAIL_CHARS_MAX]
    )
    draft.move(place, row, ESCALATED)
    row.due_ms = _publish(draft, place, row, _Asked("decision", reason, detail, failure))
    row.flight = None


def ask_for_fields(
    draft: Draft,
    place: int,
    row: StepRow,
    missing: tuple[str, ...],
    *,
    reason: str,
    failure: Failure = _UNNAMED,
) -> None:
    """The step waits until these context fields are there.

    Names that no field can have are left out, and all beyond the first `MISSING_MAX`.
    """
    missing = _askable(missing)
    detail = ("missing: " + ", ".join(missing))[:DETAIL_CHARS_MAX]
    row.past = msgspec.structs.replace(
        row.past or NO_PAST, missing=missing, reason=reason, detail=detail
    )
    draft.move(place, row, MISSING_INFO)
    head = draft.head
    if place not in head.missing:
        head.missing = (*head.missing, place)
    failure = msgspec.structs.replace(failure, type="missing_info", missing=missing)
    row.due_ms = _publish(draft, place, row, _Asked("information", reason, detail, failure))
    row.flight = None


def notice(draft: Draft, place: int, row: StepRow, reason: str, detail: str) -> None:
    """A person is told; the step stays as it is."""
    _publish(draft, place, row, _Asked("notice", reason, detail))


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
        _publish(draft, None, None, _Asked("approval", gate, detail))


def put_aside(draft: Draft, what: str) -> None:
    """The fold raised on the run: it stays as it was until a person decides, or it expires."""
    asked = _Asked("decision", "quarantined", what)
    _publish(draft, None, None, asked, answer_by_ms=draft.head.expires_ms)


def _publish(
    draft: Draft,
    place: int | None,
    row: StepRow | None,
    asked: _Asked,
    *,
    answer_by_ms: int | None = None,
) -> int:
    """Puts the escalation on record and returns its deadline."""
    head, now, run = draft.head, draft.now, draft.run
    failure = asked.failure
    head.escalations += 1
    answer_by = answer_by_ms
    if answer_by is None:
        answer_by = now.log_ms + now.policy.person_wait_ms
    step = None if place is None else draft.steps[place]
    effects, hidden = ((), 0) if place is None else _shown(draft, place)
    message = words(failure.message or asked.detail)
    if hidden:
        message = f"{message} ({hidden} more effects are in its journal)"
    reads = () if step is None else step.reads
    escalation = Escalation(
        # Derived, and different from all others of the run.
        escalation_id=f"{run.id}#{head.escalations}",
        run_id=run.id,
        flow=head.flow,
        flow_version=head.flow_version,
        step="" if step is None else step.name,
        epoch=0 if row is None else row.epoch,
        asked=asked.asked,
        # Plain text: a member of an enum of ours does not encode.
        reason=str(asked.reason),
        failure_type=str(failure.type),
        error_class=failure.error_class[:DETAIL_CHARS_MAX],
        message=message,
        missing_fields=_askable(failure.missing),
        advice=words(failure.advice),
        goal="" if step is None else words(step.goal),
        attempts=0 if row is None else row.failures,
        infra_attempts=0 if row is None else row.infra,
        at_ms=now.log_ms,
        answer_by_ms=answer_by,
        run_version=head.run_version + draft.facts,
        plan_digest=draft.plan.digest,
        values_digest=draft.context.values_digest(reads),
        effects=effects,
    )
    now.outbox.put(CHANNEL, Escalate(escalation))
    return answer_by


def _shown(draft: Draft, place: int) -> tuple[tuple[JournalEntry, ...], int]:
    """The step's journal as far as it fits beside the rest, and how many entries do not.

    Results go first. Of entries those whose outcome is unknown stay longest.
    """
    entries = [effect.entry for effect in draft.journal(place).effects]
    if sum(map(entry_bytes, entries)) <= _EFFECTS_BYTES_MAX:
        return tuple(entries), 0
    entries = [msgspec.structs.replace(entry, result=b"") for entry in entries]
    entries.sort(key=lambda entry: entry.status is EffectStatus.CONFIRMED)
    sizes = accumulate(map(entry_bytes, entries))
    kept = sum(size <= _EFFECTS_BYTES_MAX for size in sizes)
    return tuple(entries[:kept]), len(entries) - kept


def _askable(missing: tuple[str, ...]) -> tuple[str, ...]:
    return tuple([name for name in missing if not name_fault(name)][:MISSING_MAX])
