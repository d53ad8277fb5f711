"""Where a step goes after an attempt that failed: by the return contract and the two budgets."""

from __future__ import annotations

from typing import Final

import msgspec

from dalsegno.schemas.events import FailureType, StepFailed
from dalsegno.schemas.plan import RecoverPolicy, StepRole
from dalsegno.streams.core.attempts import close, dismiss, judge, observe
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.escalating import UNSAFE, Failure, ask, close_gate, notice
from dalsegno.streams.core.faultpoint.attempts import blame
from dalsegno.streams.core.flags import raise_flags
from dalsegno.streams.core.moment import APPLIED, Ruling
from dalsegno.streams.core.recovery.limits import count_recovery, told
from dalsegno.streams.core.recovery.seeking import gave_up, seek
from dalsegno.streams.core.recovery.suffering import hurt
from dalsegno.streams.core.retry import delay_ms, retry_of
from dalsegno.streams.core.rows import NO_PAST, Flight, StepRow, engine_gives, stays_with_service
from dalsegno.streams.core.saga.beginning import give_up
from dalsegno.streams.core.step_table import BACKING_OFF, StepInput

_WORKER_GONE: Final = frozenset({StepInput.LOST, StepInput.SILENT, StepInput.REPLACED})


def step_failed(draft: Draft, event: StepFailed) -> Ruling:
    """The attempt failed by its own word."""
    place = judge(draft, event, StepInput.FAILED)
    if not isinstance(place, int):
        return place
    row = draft.row(place)
    if event.epoch == 0 and (row.flight is None or event.attempt != row.attempt):
        observe(draft, place, row, event)
        row.flight = Flight(draft.now.log_ms)
    flight = row.flight
    if flight is not None and event.progress > flight.progress:
        row.flight = msgspec.structs.replace(flight, progress=event.progress)
    raise_flags(draft, event.risk_flags)
    failure = Failure(
        type=event.failure_type,
        error_class=event.error_class,
        message=event.message,
        missing=event.missing_fields,
        advice=event.advice,
        dependency=event.dependency,
    )
    if event.failure_type is FailureType.DEPENDENCY:
        blame(
            draft,
            place,
            row.flight,
            event.error_class,
            dependency=event.dependency,
            retry_after_ms=event.retry_after_ms or 0,
        )
    close(row, StepInput.FAILED)
    route(draft, place, row, failure, event.retry_after_ms)
    return APPLIED


def route(
    draft: Draft,
    place: int,
    row: StepRow,
    failure: Failure,
    retry_after_ms: int | None = None,
) -> None:
    """Advice is advice: the type and the plan's policy decide. The attempt is closed already."""
    kind = failure.type
    if gave_up(draft, place, row):
        return
    hurt(draft, place, row)
    if kind == FailureType.DEPENDENCY:
        row.infra += 1
        _again(draft, place, row, failure, retry_after_ms)
        return
    row.failures += 1
    if kind == FailureType.TRANSIENT:
        _again(draft, place, row, failure, retry_after_ms)
    elif kind == FailureType.MISSING_INFO:
        seek(draft, place, row, failure.missing, reason="missing_info", failure=failure)
    elif kind == FailureType.UNSAFE or not _turns_round(draft, place, str(kind), failure):
        ask(draft, place, row, reason=kind, detail=failure.message, failure=failure)
        if kind == FailureType.UNSAFE:
            close_gate(draft, f"{UNSAFE}{draft.step(place).name}", failure.message, told=True)


def exhausted(draft: Draft, place: int, row: StepRow) -> str:
    """Which budget of the step is used up, or an empty text."""
    retry = retry_of(draft.now.policy, draft.steps[place].retry)
    if row.failures >= retry.max_attempts:
        return "attempts_exhausted"
    if row.infra >= retry.max_infra_attempts:
        return "infra_attempts_exhausted"
    return ""


def _again(
    draft: Draft, place: int, row: StepRow, failure: Failure, retry_after_ms: int | None = None
) -> None:
    reason = exhausted(draft, place, row)
    detail = failure.message or f"{row.failures} failed, {row.infra} lost"
    if not reason and (reason := count_recovery(draft)):
        detail = told(draft, reason)
    if reason:
        if _turns_round(draft, place, reason, failure):
            return
        ask(draft, place, row, reason=reason, detail=detail, failure=failure)
        return
    step = draft.steps[place]
    now = draft.now
    if engine_gives(step, row):
        past = row.past or NO_PAST
        retry = retry_of(now.policy, step.retry)
        drawn = delay_ms(retry, draft.run.id, step.name, row.epoch, row.failures + row.infra)
        # Where the ceiling stands a draw may be less than the one before.
        delay = max(past.delay_ms, drawn)
        row.past = msgspec.structs.replace(past, delay_ms=delay)
        if retry_after_ms is not None:
            delay = max(delay, min(retry_after_ms, now.policy.retry_after_max_ms))
    else:
        # The service retries by itself: it has as long as an attempt may take.
        delay = step.timeout_ms
    draft.move(place, row, BACKING_OFF)
    row.due_ms = now.log_ms + delay


def _turns_round(draft: Draft, place: int, cause: str, failure: Failure) -> bool:
    """The step has failed for good: the run goes back, if its plan says so and it still may."""
    if draft.steps[place].role is StepRole.COMPENSATION:
        return False
    said = ": ".join(word for word in (failure.error_class, failure.message) if word)
    return give_up(draft, cause, f"step {draft.steps[place].name}: {said}")


def infra_fault(draft: Draft, place: int, row: StepRow, by: str, detail: str) -> None:
    """The attempt in flight is lost to a timeout, a worker or a verdict; it is told so.

    A step that its service runs by itself goes as its `recover` says.
    """
    step = draft.steps[place]
    if stays_with_service(step, row):
        _stalled(draft, place, row, by, detail)
        return
    dismiss(draft, step.name, row, by)
    if by == StepInput.TIMEOUT and step.depends_on:
        # A dependency that hangs looks like this.
        blame(draft, place, row.flight, "timeout")
    close(row, by)
    if gave_up(draft, place, row):
        return
    row.infra += 1
    hurt(draft, place, row)
    failure = Failure(
        type=FailureType.DEPENDENCY, error_class=by, message=detail, evidence=f"{by}: {detail}"
    )
    # A worker that died says nothing against the step: it goes on at once. What goes wrong a second
    # time waits, since the step itself may be what brings its workers down.
    at_once = row.epoch == 0 or (by in _WORKER_GONE and row.infra + row.failures == 1)
    if not at_once or exhausted(draft, place, row):
        _again(draft, place, row, failure)
    elif reason := count_recovery(draft):
        ask(draft, place, row, reason=reason, detail=told(draft, reason), failure=failure)
    else:
        draft.again(place, row)


def _stalled(draft: Draft, place: int, row: StepRow, by: str, detail: str) -> None:
    """A service's own attempt has stalled and stays the service's: a person is told, or asked.

    Its reports are still taken, since nobody else has the step.
    """
    if draft.steps[place].recover is RecoverPolicy.PERSON:
        ask(draft, place, row, reason=by, detail=detail)
        return
    past = row.past or NO_PAST
    row.due_ms = 0
    if not past.noticed:
        row.past = msgspec.structs.replace(past, noticed=1)
        notice(draft, place, by, detail)
    flight = row.flight
    if flight is not None:
        row.flight = msgspec.structs.replace(flight, last_offset=draft.now.offset)


def retry_due(draft: Draft, place: int, row: StepRow) -> None:
    """The wait before the next attempt is over."""
    step = draft.steps[place]
    reason = exhausted(draft, place, row)
    if reason:
        # A late `lost` verdict has charged an epoch meanwhile.
        detail = f"{row.failures} failed, {row.infra} lost"
        if _turns_round(draft, place, reason, Failure(message=detail)):
            return
        ask(draft, place, row, reason=reason, detail=detail)
    elif engine_gives(step, row):
        draft.again(place, row)
    else:
        detail = "the service has not tried again"
        if not _turns_round(draft, place, "not_retried", Failure(message=detail)):
            ask(draft, place, row, reason="not_retried", detail=detail)
