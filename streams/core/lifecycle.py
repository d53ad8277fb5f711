"""Events about the run as a whole, each in constant space: nothing here walks the steps."""

from __future__ import annotations

from typing import Final

from dalsegno.schemas.events import (
    PlanExtended,
    RiskFlagged,
    RunCancelled,
    RunPaused,
    RunResumed,
)
from dalsegno.schemas.outputs import Outcome, RunState
from dalsegno.schemas.plan import StepRole
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.flags import raise_flags
from dalsegno.streams.core.moment import ACCEPTED, Ruling, refused
from dalsegno.streams.core.names import ID_CHARS_MAX
from dalsegno.streams.core.plan import PlanRefused
from dalsegno.streams.core.recovery.giving_up import hand_over, wait_no_longer
from dalsegno.streams.core.rows import StepRow
from dalsegno.streams.core.run_table import RUN_TABLE, RunInput
from dalsegno.streams.core.runstate import IDLE
from dalsegno.streams.core.saga.beginning import end_or_go_back, give_up
from dalsegno.streams.core.step_table import COMPLETED, READY

# Who a run's pause belongs to when its event names no source.
_SOMEBODY: Final = "unnamed"


def _ruled(draft: Draft, what: RunInput) -> Ruling | None:
    rule = RUN_TABLE[draft.head.state][what]
    if rule.outcome is Outcome.APPLIED:
        return None
    return refused(rule.reason)


def run_paused(draft: Draft, event: RunPaused) -> Ruling:
    """Nothing further is dispatched; what runs goes on."""
    by = event.source[:ID_CHARS_MAX] or _SOMEBODY
    return _set_paused(draft, RunInput.PAUSED, event.reason, by=by)


def run_resumed(draft: Draft, event: RunResumed) -> Ruling:
    """What became ready meanwhile goes."""
    return _set_paused(draft, RunInput.RESUMED, event.reason, by="")


def _set_paused(draft: Draft, what: RunInput, reason: str, *, by: str) -> Ruling:
    ruling = _ruled(draft, what)
    if ruling is None:
        draft.head.paused, draft.head.paused_by = bool(by), by
        draft.reason = reason
    return ruling or ACCEPTED


def run_cancelled(draft: Draft, event: RunCancelled) -> Ruling:
    """The run ends now, or is taken back first, where its plan says so."""
    ruling = _ruled(draft, RunInput.CANCELLED)
    if draft.head.saga is not None:
        if draft.head.state is RunState.QUARANTINED:
            fail_run(draft, "cancelled")
            return ACCEPTED
        ruling = refused("compensating", "the run is being taken back; it ends compensated")
    if ruling is None and not end_or_go_back(draft, "cancelled", event.reason):
        _end(draft, RunState.CANCELLED, event.reason or "cancelled")
    return ruling or ACCEPTED


def risk_flagged(draft: Draft, event: RiskFlagged) -> Ruling:
    """A person, or a service that looks on, flags the run."""
    raise_flags(draft, (event.flag,))
    draft.reason = event.reason
    return ACCEPTED


def expire_run(draft: Draft) -> None:
    """The run's time to live is over: it ends, is taken back, or is put to a person."""
    if draft.head.state is RunState.QUARANTINED and draft.head.saga is not None:
        fail_run(draft, "ttl_passed")
    elif draft.head.saga is not None:
        wait_no_longer(draft)
    elif not end_or_go_back(draft, "ttl_passed") and not hand_over(draft):
        _end(draft, RunState.EXPIRED, "ttl_passed")


def cancel_run(draft: Draft) -> None:
    """The run ends because a person says so."""
    _end(draft, RunState.CANCELLED, "cancelled")


def fail_run(draft: Draft, reason: str) -> None:
    """The run ends without its goal, or is taken back first, where its plan says so.

    A run that was being taken back, and cannot be wholly, has failed: never is it compensated.
    """
    if draft.head.saga is not None:
        _end(draft, RunState.FAILED, "compensation_failed")
    elif not give_up(draft, reason):
        _end(draft, RunState.FAILED, reason)


def _end(draft: Draft, state: RunState, reason: str) -> None:
    draft.head.state = state
    draft.head.waiting_for = ""
    draft.reason = reason
    draft.facts = True


def plan_extended(draft: Draft, event: PlanExtended) -> Ruling:
    """Steps are appended; those that need nothing unfinished are ready at once."""
    head, plan = draft.head, draft.plan
    if head.saga is not None:
        return refused("compensating", "the run is being taken back: nothing is added to it")
    if event.expected_plan_digest and event.expected_plan_digest != plan.digest:
        return refused("plan_conflict", f"the plan's digest is {plan.digest.hex()}")
    now = draft.now
    try:
        longer = plan.extend(event.steps, policy=now.policy, ttl_ms=head.ttl_ms)
    except PlanRefused as error:
        return refused(error.code, error.detail)
    first = len(plan.steps)
    draft.entry = now.plans.interned(longer, draft.entry.rows)
    draft.plan = draft.entry.plan
    draft.steps = draft.entry.steps
    head.left += draft.plan.forward_count - plan.forward_count
    head.tally[IDLE] += len(draft.steps) - first
    draft.facts = True
    if event.last:
        head.plan_open = False
    for place in range(first, len(draft.steps)):
        # Needs of appended steps that have completed already are met.
        needs = draft.plan.needs[place]
        met = sum(p < first and draft.peek(p).state is COMPLETED for p in needs)
        row = StepRow(needs=len(needs) - met)
        draft.rows[place] = row
        if row.needs == 0 and draft.steps[place].role is StepRole.FORWARD:
            draft.move(place, row, READY)
    return ACCEPTED
