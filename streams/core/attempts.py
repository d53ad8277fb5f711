"""Reports of attempts: which attempt speaks, whether it may, and what it changes."""

from __future__ import annotations

from typing import Final

import msgspec

from dalsegno.schemas.events import (
    AttemptEvent,
    StepCompleted,
    StepFailed,
    StepProgressed,
    StepReleased,
    StepStarted,
)
from dalsegno.schemas.outputs import AnswerType, Outcome
from dalsegno.schemas.plan import StepPlan, StepRole
from dalsegno.streams.core.answering import tell
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.moment import APPLIED, Ruling, duplicate, refused, superseded
from dalsegno.streams.core.names import ID_CHARS_MAX
from dalsegno.streams.core.recovery.suffering import hurt
from dalsegno.streams.core.retry import redispatch_ms
from dalsegno.streams.core.rows import NO_PAST, Flight, Past, StepRow
from dalsegno.streams.core.step_table import (
    BACKING_OFF,
    MANAGED,
    OBSERVED,
    RUNNING,
    StepInput,
)

INPUT_OF: Final[dict[type, StepInput]] = {
    StepStarted: StepInput.STARTED,
    StepProgressed: StepInput.PROGRESSED,
    StepCompleted: StepInput.COMPLETED,
    StepFailed: StepInput.FAILED,
    StepReleased: StepInput.RELEASED,
}
_APPLIED: Final = Outcome.APPLIED
_STARTED: Final = StepInput.STARTED
# Epochs that expired and could still be charged by a `lost` verdict.
_EXPIRED_MAX: Final = 32


def judge(draft: Draft, event: AttemptEvent, what: StepInput) -> int | Ruling:
    """The place of the reporter's step, or why the report is not applied.

    Rules 1 to 3 of the step's table, then the table.
    """
    place = draft.plan.index.get(event.step)
    if place is None:
        return refused("unknown_step", f"the plan has no step {event.step!a}")
    row = draft.peek(place)
    epoch = event.epoch
    if epoch != row.epoch:
        if epoch < row.epoch:
            return superseded("older_epoch", _current(row))
        return refused("unknown_epoch", f"epoch {epoch}, the step's last is {row.epoch}")
    table = MANAGED
    if epoch == 0:
        step = draft.steps[place]
        if step.queue or step.role is StepRole.COMPENSATION:
            return refused("not_dispatched", "the step has not been given out yet")
        table = OBSERVED
        if event.attempt < row.attempt:
            return superseded("older_attempt")
    if row.closed and (epoch or event.attempt == row.attempt):
        if row.closed == what:
            return duplicate()
        return superseded("epoch_closed", _current(row))
    rule = table[row.state][what]
    if rule.outcome is _APPLIED:
        return place
    if rule.outcome is Outcome.DUPLICATE and row.state is RUNNING and event.attempt > row.attempt:
        # A service starts anew what it was running: its next attempt, not a repeat.
        return place
    return Ruling(rule.outcome, rule.reason)


def _current(row: StepRow) -> int:
    return row.epoch + 1 if row.closed else row.epoch


def close(row: StepRow, by: str) -> None:
    """The open attempt is over; its progress is kept for who looks."""
    flight = row.flight
    row.closed = by
    if flight is not None:
        if flight.progress or flight.saved or row.past is not None:
            row.past = msgspec.structs.replace(
                row.past or NO_PAST, progress=flight.progress, saved=flight.saved
            )
        row.flight = None


def dismiss(draft: Draft, step: str, row: StepRow, reason: str) -> None:
    """Tells the worker of a running attempt that it has lost its step."""
    flight = row.flight
    if flight is not None and flight.reply_to:
        tell(
            draft.now,
            flight.reply_to,
            draft.run.id,
            AnswerType.SUPERSEDED,
            step=step,
            epoch=row.epoch,
            reason=reason,
            current_epoch=row.epoch + 1,
        )


def step_started(draft: Draft, event: StepStarted) -> Ruling:
    """The attempt runs: its body begins after this."""
    place = judge(draft, event, _STARTED)
    if not isinstance(place, int):
        return _same_worker(draft, event, place)
    if len(event.worker) > ID_CHARS_MAX:
        return refused("bad_worker", f"the name of a worker has at most {ID_CHARS_MAX} characters")
    now = draft.now
    row = draft.row(place)
    flight = row.flight
    if event.epoch and flight is not None:
        if now.at_ms >= flight.start_by_ms:
            late = now.at_ms - flight.start_by_ms
            return refused("start_by_passed", f"appended {late} ms after the start limit")
        row.flight = Flight(
            now.clock.log_ms,
            flight.start_by_ms,
            flight.offset,
            flight.index,
            flight.count,
            event.worker,
            event.incarnation,
            event.reply_to,
            0,
            now.offset,
        )
    else:
        observe(draft, place, row, event)
        row.flight = Flight(
            now.clock.log_ms,
            worker=event.worker,
            incarnation=event.incarnation,
            reply_to=event.reply_to,
            last_offset=now.offset,
        )
    draft.head.starts += 1
    if row.past is not None and row.past.unstarted:
        row.past = msgspec.structs.replace(row.past, unstarted=0, mismatches=0)
    _run(draft, place, row, draft.steps[place])
    return APPLIED


def _same_worker(draft: Draft, event: StepStarted, ruling: Ruling) -> Ruling:
    """A repeated start is a duplicate only from the worker that runs the attempt."""
    if ruling.outcome is Outcome.DUPLICATE and not ruling.answer:
        row = draft.peek(draft.plan.index[event.step])
        flight = row.flight
        if flight is not None and (flight.worker, flight.incarnation) != (
            event.worker,
            event.incarnation,
        ):
            return refused("already_started", f"epoch {row.epoch} is run by {flight.worker!a}")
    return ruling


def _run(draft: Draft, place: int, row: StepRow, step: StepPlan) -> None:
    if row.state is not RUNNING:
        draft.move(place, row, RUNNING)
    row.due_ms = draft.now.live_from_now(step.timeout_ms)
    row.live = True


def observe(draft: Draft, place: int, row: StepRow, event: AttemptEvent) -> None:
    """A service reports an attempt of its own that is new to us: the one before it is over."""
    if event.attempt != row.attempt:
        dismiss(draft, event.step, row, "newer_attempt")
    row.attempt = event.attempt
    row.closed = ""
    if row.past is not None and row.past.missing:
        row.past = msgspec.structs.replace(row.past, missing=())
        draft.head.missing = tuple(p for p in draft.head.missing if p != place)


def seen_running(draft: Draft, place: int, row: StepRow, event: AttemptEvent) -> Flight:
    """The attempt's flight; a service's own attempt may be heard of first by any report."""
    flight = row.flight
    if event.epoch == 0 and (flight is None or event.attempt != row.attempt):
        observe(draft, place, row, event)
        flight = row.flight = Flight(draft.now.clock.log_ms, reply_to=event.reply_to)
        _run(draft, place, row, draft.steps[place])
    assert flight is not None, "a running step has a flight"
    return flight


def touch(draft: Draft, place: int, event: AttemptEvent) -> None:
    """Notes that the attempt has reported, for verdicts that had not read it."""
    row = draft.row(place)
    flight = seen_running(draft, place, row, event)
    row.flight = msgspec.structs.replace(flight, last_offset=draft.now.offset)


def step_progressed(draft: Draft, event: StepProgressed) -> Ruling:
    """The highest progress stands, and the save that came with it; a first save always counts."""
    place = judge(draft, event, StepInput.PROGRESSED)
    if not isinstance(place, int):
        return _late_progress(draft, event, place)
    limit = draft.now.policy.save_bytes_max
    if event.save is not None and len(event.save) > limit:
        return refused("save_too_large", f"{len(event.save)} bytes, the policy allows {limit}")
    row = draft.row(place)
    flight = seen_running(draft, place, row, event)
    if _told_before(event, flight):
        return duplicate("older_progress")
    row.flight = msgspec.structs.replace(
        flight,
        progress=max(event.progress, flight.progress),
        last_offset=draft.now.offset,
        saved=flight.saved or event.save is not None,
    )
    if event.save is not None:
        draft.save = (place, event.save)
    return APPLIED


def _told_before(event: StepProgressed, known: Flight | Past) -> bool:
    """Nothing new: no higher progress, and no first save of its attempt."""
    return event.progress <= known.progress and (event.save is None or known.saved)


def _late_progress(draft: Draft, event: StepProgressed, ruling: Ruling) -> Ruling:
    """Progress that was overtaken by the report that the same attempt failed still counts.

    Only until the next dispatch: then its epoch is an older one.
    """
    place = draft.plan.index.get(event.step)
    if place is None or ruling.reason != "epoch_closed":
        return ruling
    if draft.peek(place).closed != StepInput.FAILED:
        return ruling
    row = draft.row(place)
    past = row.past or NO_PAST
    limit = draft.now.policy.save_bytes_max
    if _told_before(event, past) or len(event.save or b"") > limit:
        return duplicate("older_progress")
    row.past = msgspec.structs.replace(
        past,
        progress=max(event.progress, past.progress),
        saved=past.saved or event.save is not None,
    )
    if event.save is not None:
        draft.save = (place, event.save)
    return APPLIED


def start_limit_passed(draft: Draft, place: int, row: StepRow) -> None:
    """Nobody started the epoch. `lost` may charge it later, once."""
    past = row.past or NO_PAST
    row.past = msgspec.structs.replace(past, expired=(*past.expired, row.epoch)[-_EXPIRED_MAX:])
    close(row, StepInput.START_LIMIT)
    uncharged(draft, place, row)


def uncharged(draft: Draft, place: int, row: StepRow) -> None:
    """The next epoch follows at growing intervals and costs no attempt."""
    hurt(draft, place, row, lost=False)
    past = row.past or NO_PAST
    unstarted = past.unstarted + 1
    row.past = msgspec.structs.replace(past, unstarted=unstarted)
    now = draft.now
    delay = redispatch_ms(now.policy, draft.run.id, draft.steps[place].name, row.epoch, unstarted)
    draft.move(place, row, BACKING_OFF)
    row.due_ms = now.log_ms + delay
