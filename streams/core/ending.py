"""The end of a run: everyone who waits is told, and a stub stays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dalsegno.schemas.control import Policy
from dalsegno.schemas.outputs import AnswerType, EffectStatus, RunState
from dalsegno.schemas.plan import OnFailure
from dalsegno.streams.core.answering import tell
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.effects import effect_mark
from dalsegno.streams.core.names import DETAIL_CHARS_MAX
from dalsegno.streams.core.people.state import DECIDED_KEPT
from dalsegno.streams.core.runstate import FLYING, UNKNOWN_MAX, Stub, StubHead
from dalsegno.streams.core.saga.looking import left_of

# A final context up to this size stays in the stub, so that who asks later still gets it.
STUB_CONTEXT_BYTES: Final = 2_048


def end_run(draft: Draft, *, step: str, epoch: int) -> Stub:
    """Answers the workers of running attempts and whoever started the run.

    The context goes without its secret fields, and not at all when it is above the policy's
    `dispatch_bytes_max`.
    """
    head, run, now = draft.head, draft.run, draft.now
    if head.tally[FLYING] and run.head.state is not RunState.QUARANTINED:
        succeeded = head.state is RunState.SUCCEEDED
        stop_attempts(draft, AnswerType.SUPERSEDED if succeeded else AnswerType.CANCELLED)
    secrets = draft.plan.secrets
    shown = [name for name in draft.context.names() if name not in secrets]
    context = draft.context.pack(shown)
    omitted = len(context) > now.policy.dispatch_bytes_max
    tell(
        now,
        head.reply_to,
        run.id,
        AnswerType.ENDED,
        kind="RunStarted",
        reason=draft.reason,
        run_state=head.state,
        run_version=head.run_version + 1,
        context=b"" if omitted else context,
        context_omitted=omitted,
    )
    stub = Stub(run.id, _stub_head(draft, step, epoch, shown, context))
    stub.kept = run.kept
    return stub


def _stub_head(
    draft: Draft, step: str, epoch: int, shown: Sequence[str], context: bytes
) -> StubHead:
    """`context`: of the fields that are shown, packed; it stays if it is small."""
    head, now = draft.head, draft.now
    kept = len(context) <= STUB_CONTEXT_BYTES
    return StubHead(
        until_ms=now.log_ms + kept_ms(now.policy, head.state),
        state=head.state,
        flow=head.flow,
        flow_version=head.flow_version,
        run_version=head.run_version + 1,
        start_digest=head.start_digest,
        plan_digest=draft.plan.digest,
        started_ms=head.started_ms,
        ended_ms=now.log_ms,
        reason=draft.reason[:DETAIL_CHARS_MAX],
        last_step=step,
        last_epoch=epoch,
        request_id=draft.seen,
        effects_unknown=head.effects_unknown,
        detail=_left(draft),
        unknown=_unknown(draft),
        context=context if kept else b"",
        context_schema=head.context_schema if kept else "",
        context_schema_version=head.context_schema_version if kept else 0,
        field_versions=tuple(v for v in head.field_versions if v[0] in shown) if kept else (),
        decided=head.people.decided[-DECIDED_KEPT:] if head.people is not None else (),
    )


def kept_ms(policy: Policy, state: RunState) -> int:
    """For how long a run that has ended in this state still answers, milliseconds."""
    own = {
        RunState.SUCCEEDED: policy.keep_succeeded_ms,
        RunState.FAILED: policy.keep_failed_ms,
        RunState.COMPENSATED: policy.keep_compensated_ms,
        RunState.CANCELLED: policy.keep_cancelled_ms,
        RunState.EXPIRED: policy.keep_expired_ms,
    }
    return own[state] or policy.stub_keep_ms


def _left(draft: Draft) -> str:
    """What a run leaves behind, exactly, if it was being taken back or could have been."""
    goes_back = draft.head.saga is not None or draft.plan.plan.on_failure is OnFailure.COMPENSATE
    if not goes_back or draft.head.state in {RunState.COMPENSATED, RunState.SUCCEEDED}:
        return ""
    return left_of(draft).text()[:DETAIL_CHARS_MAX]


def _unknown(draft: Draft) -> tuple[bytes, ...]:
    """Marks of the effects whose outcome is open, in the order of the plan, as many as may stay."""
    journals = draft.run.journal
    if not draft.head.effects_unknown or journals is None:
        return ()
    marks = [
        effect_mark(draft.steps[place].name, effect.entry.effect, effect.entry.occurrence)
        for place in sorted(journals)
        for effect in journals[place].effects
        if effect.entry.status is EffectStatus.UNKNOWN
    ]
    return tuple(marks[:UNKNOWN_MAX])


def stop_attempts(draft: Draft, answer: AnswerType) -> None:
    """Tells the workers of all running attempts that they are no longer wanted."""
    for place, old in enumerate(draft.run.rows):
        row = draft.rows.get(place, old)
        if row.flight is not None and row.flight.reply_to:
            tell(
                draft.now,
                row.flight.reply_to,
                draft.run.id,
                answer,
                step=draft.steps[place].name,
                epoch=row.epoch,
                reason=draft.reason,
                run_state=draft.head.state,
            )
