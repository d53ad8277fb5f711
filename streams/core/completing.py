"""A step completes: its operations enter the context, and the steps behind it may go."""

from __future__ import annotations

from typing import Final

from dalsegno.schemas.events import FailureType, StepCompleted
from dalsegno.schemas.outputs import Outcome
from dalsegno.schemas.plan import StepRole
from dalsegno.streams.core.attempts import close, judge, observe
from dalsegno.streams.core.context import ContextError, ContextTooLarge, WriteRefused
from dalsegno.streams.core.context_versions import VersionMixed, note_versions
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.escalating import Failure
from dalsegno.streams.core.flags import raise_flags
from dalsegno.streams.core.information import recheck_missing
from dalsegno.streams.core.moment import APPLIED, Ruling, refused
from dalsegno.streams.core.people.origins import written_beside
from dalsegno.streams.core.recovery.seeking import look_further
from dalsegno.streams.core.routing import route
from dalsegno.streams.core.rows import StepRow
from dalsegno.streams.core.saga.taking_back import compensation_completed
from dalsegno.streams.core.step_table import COMPLETED, PENDING, READY, StepInput

# An empty MessagePack array of operations, and nothing at all.
_NO_OPS: Final = frozenset({b"", b"\x90"})
_COMPLETED: Final = StepInput.COMPLETED
_COMPENSATION: Final = StepRole.COMPENSATION


def step_completed(draft: Draft, event: StepCompleted) -> Ruling:
    """Takes the result of the open attempt.

    Operations that cannot be applied, or declared writes that are missing afterwards, make it an
    attempt that failed as invalid: it leaves no trace in the context.
    """
    place = judge(draft, event, _COMPLETED)
    if not isinstance(place, int):
        return place
    expected = event.expected_run_version
    if expected is not None and expected != draft.head.run_version:
        return refused(
            "version_conflict", f"expected run version {expected}, is {draft.head.run_version}"
        )
    row = draft.row(place)
    if event.epoch == 0:
        observe(draft, place, row, event)
    failure = _take_ops(draft, place, event)
    if failure is not None:
        close(row, StepInput.FAILED)
        route(draft, place, row, failure)
        return Ruling(Outcome.APPLIED, failure.error_class, failure.message, failed=True)
    _complete(draft, place, row)
    if event.risk_flags:
        raise_flags(draft, event.risk_flags)
    if draft.head.missing:
        if draft.change is not None:
            recheck_missing(draft, draft.change.changed)
        look_further(draft, place)
    return APPLIED


def _take_ops(draft: Draft, place: int, event: StepCompleted) -> Failure | None:
    """Opens the change of the context, or says why the attempt has failed."""
    plan = draft.plan
    step = draft.steps[place]
    context = draft.run.context
    if event.ops not in _NO_OPS:
        try:
            draft.change = context.apply(
                event.ops,
                draft.now.policy,
                allowed=plan.writes[place],
                step=step.name,
                merges=plan.merges,
            )
            note_versions(draft, draft.change, event.context_schema_version)
        except ContextError as error:
            _drop_change(draft)
            return Failure(
                type=FailureType.INVALID, error_class=_class_of(error), message=str(error)
            )
    missing = draft.context.missing(step.writes)
    if missing:
        _drop_change(draft)
        draft.head.field_versions = draft.run.head.field_versions
        return Failure(
            type=FailureType.INVALID,
            error_class="no_output",
            message="declared and not written: " + ", ".join(missing),
        )
    return None


def _drop_change(draft: Draft) -> None:
    if draft.change is not None:
        draft.change.discard()
        draft.change = None


def _class_of(error: ContextError) -> str:
    if isinstance(error, WriteRefused):
        return "write_refused"
    if isinstance(error, ContextTooLarge):
        return "context_too_large"
    if isinstance(error, VersionMixed):
        return "schema_version_mixed"
    return "bad_ops"


def _took_back(draft: Draft, place: int, row: StepRow) -> None:
    row.flight = row.past = None
    if draft.saved(place) is not None:
        draft.save = (place, None)
    draft.facts = True
    compensation_completed(draft, place)


def _complete(draft: Draft, place: int, row: StepRow) -> None:
    head = draft.head
    draft.move(place, row, COMPLETED)
    flight = row.flight
    if flight is not None:
        took_ms = draft.now.log_ms - flight.since_ms
        if row.epoch or took_ms:  # else a service's own, heard of only now: nobody knows how long
            draft.took = (draft.steps[place].name, took_ms)
        if draft.steps[place].depends_on:
            draft.well = (place, took_ms, flight.offset)
    if draft.steps[place].role is _COMPENSATION:
        _took_back(draft, place, row)
        return
    row.flight = None
    row.past = None
    row.done = head.run_version + 1
    may_write = draft.steps[place].may_write
    if may_write or row.handled is not None:
        row.handled = written_beside(draft, may_write)
    if draft.saved(place) is not None:
        draft.save = (place, None)
    head.left -= 1
    draft.facts = True
    if row.repair is not None and row.repair.supplies:
        # It was run again for a missing field: what stands behind it went on the first time.
        return
    for behind in draft.plan.graph.dependents[place]:
        waiting = draft.row(behind)
        waiting.needs -= 1
        if waiting.needs == 0 and waiting.state is PENDING:
            draft.move(behind, waiting, READY)
