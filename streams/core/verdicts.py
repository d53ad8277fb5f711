"""Verdicts of the monitor: taken only where the fold knows nothing better."""

from __future__ import annotations

import msgspec

from dalsegno.schemas.control import StallSuspected, Verdict
from dalsegno.schemas.outputs import Outcome
from dalsegno.schemas.plan import RecoverPolicy
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.escalating import notice
from dalsegno.streams.core.moment import APPLIED, Ruling, duplicate, refused, superseded
from dalsegno.streams.core.routing import infra_fault
from dalsegno.streams.core.rows import NO_PAST, StepRow
from dalsegno.streams.core.step_table import MANAGED, OBSERVED, StepInput

INPUT_OF = {
    Verdict.LOST: StepInput.LOST,
    Verdict.SILENT: StepInput.SILENT,
    Verdict.STUCK: StepInput.STUCK,
    Verdict.REPLACED: StepInput.REPLACED,
}


def stall_suspected(draft: Draft, event: StallSuspected) -> Ruling:
    """Drops a verdict that is too old, or that had not read the attempt's last report."""
    place = draft.plan.index.get(event.step)
    if place is None:
        return refused("unknown_step", f"the plan has no step {event.step!a}")
    now = draft.now
    age_ms = now.log_ms - event.heartbeats_at_ms
    if age_ms > now.policy.verdict_age_ms:
        return refused("verdict_too_old", f"its evidence is {age_ms} ms old")
    row = draft.peek(place)
    if event.epoch > row.epoch:
        return refused("unknown_epoch", f"epoch {event.epoch}, the step's last is {row.epoch}")
    what = INPUT_OF[event.verdict]
    if event.epoch < row.epoch or row.closed:
        return _on_closed(draft, place, row, event, what)
    table = MANAGED if row.epoch else OBSERVED
    rule = table[row.state][what]
    if rule.outcome is not Outcome.APPLIED:
        return Ruling(rule.outcome, rule.reason)
    flight = row.flight
    if flight is None:
        return refused("not_running")
    if flight.last_offset >= event.events_offset:
        return refused("reported_since", f"at offset {flight.last_offset}")
    if event.verdict is Verdict.REPLACED and flight.worker not in {"", event.worker}:
        return refused("other_worker", f"the attempt is run by {flight.worker!a}")
    recover = draft.steps[place].recover
    if event.verdict is Verdict.STUCK and (row.epoch or recover is RecoverPolicy.REDISPATCH):
        return _slow(draft, place, row, event)
    infra_fault(draft, place, draft.row(place), what, event.evidence or f"verdict {what}")
    return APPLIED


def _slow(draft: Draft, place: int, row: StepRow, event: StallSuspected) -> Ruling:
    """Alive and not progressing: a person is told, once per epoch.

    The attempt goes on; only its own timeout ends it, as the plan says.
    """
    past = row.past or NO_PAST
    if past.noticed == row.epoch + 1:
        return duplicate()
    row = draft.row(place)
    row.past = msgspec.structs.replace(past, noticed=row.epoch + 1)
    detail = f"no progress for {event.elapsed_ms} ms, usual are {event.threshold_ms}"
    notice(draft, place, event.verdict, event.evidence or detail)
    return APPLIED


def _on_closed(
    draft: Draft, place: int, row: StepRow, event: StallSuspected, what: StepInput
) -> Ruling:
    """An epoch that is over: `lost` charges one that nobody was charged for, once."""
    past = row.past
    if event.verdict is Verdict.LOST and past is not None and event.epoch in past.expired:
        row = draft.row(place)
        row.infra += 1
        left = tuple(epoch for epoch in past.expired if epoch != event.epoch)
        row.past = msgspec.structs.replace(past, expired=left)
        return APPLIED
    if event.epoch == row.epoch and row.closed == what:
        return duplicate()
    return superseded("older_epoch", row.epoch)
