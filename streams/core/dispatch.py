"""Gives ready steps out, and settles what state the run is in."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from dalsegno.schemas.outputs import (
    EffectStatus,
    FieldVersion,
    Handoff,
    JournalEntry,
    RunState,
)
from dalsegno.schemas.plan import Risk, StepRole, UnknownPolicy
from dalsegno.streams.core.actions import Dispatch
from dalsegno.streams.core.bounds import entry_bytes, utf8_bytes
from dalsegno.streams.core.context_errors import MissingFields
from dalsegno.streams.core.context_versions import of_fields, versions_bytes
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.effects import recovery_key
from dalsegno.streams.core.escalating import ask
from dalsegno.streams.core.faultpoint.attempts import take_permits
from dalsegno.streams.core.people.approvals import approved, ask_approval
from dalsegno.streams.core.people.granting import granted
from dalsegno.streams.core.recovery.barriers import barrier
from dalsegno.streams.core.recovery.holding import FROZEN, POINT
from dalsegno.streams.core.recovery.seeking import hint, seek
from dalsegno.streams.core.recovery.suffering import hold_back
from dalsegno.streams.core.rows import Flight, StepRow, engine_gives
from dalsegno.streams.core.run_table import FINAL_RUNS
from dalsegno.streams.core.runstate import (
    ASKING,
    BACKING,
    BLOCKED,
    FLYING,
    GOING,
    HOLDING,
    NEVER,
)
from dalsegno.streams.core.saga.handing import NOTHING, Taking, what_to_take_back
from dalsegno.streams.core.step_table import DISPATCHED, HELD, PENDING, READY

# What a handoff holds beside its inputs, effects and save: names, numbers, framing. Where these are
# longer, the room between the policy's `dispatch_bytes_max` and what a topic takes is enough.
_FRAME_BYTES: Final = 512
# Names of fields up to this many are part of the frame.
_FEW_FIELDS: Final = 32
# An empty MessagePack map.
_NO_INPUTS: Final = b"\x80"
_PEOPLE: Final = frozenset({"person", "information"})
_RUNNING: Final = RunState.RUNNING
_NO_RISK: Final = Risk.NONE
_COMPENSATION: Final = StepRole.COMPENSATION
_FREEZE: Final = "freeze"
_FAULT_POINT: Final = "fault point"
# What a run is while something of it is out.
_GOING: Final = frozenset({RunState.RUNNING, RunState.COMPENSATING})


def dispatch_ready(draft: Draft) -> None:
    """Dispatches what may go, in the order of the plan, as far as the run's width allows.

    A run that is paused, gated or not wholly planned holds everything back here: nothing else has
    to know. Steps that stay back are found again in the run's heap of ready steps.
    """
    head = draft.head
    if not draft.ready and not draft.run.ready:
        return
    if head.paused or head.gate or head.plan_open or head.state in FINAL_RUNS:
        return
    width = draft.now.policy.step_concurrency_max - head.tally[FLYING]
    parked = draft.run.ready
    if parked:
        # One order for what waited and what has just become ready. An entry too many does no harm:
        # each is checked against its row, and a discarded unit has the heap built anew.
        for place in draft.ready:
            heappush(parked, place)
        _unpark(draft, parked, width)
        return
    ready = draft.ready
    if len(ready) > 1:
        ready.sort()
    for place in ready:
        row = draft.rows[place]
        if row.state is READY and engine_gives(draft.steps[place], row):
            if width <= 0:
                return
            width -= _give_out(draft, place, row)


def _unpark(draft: Draft, parked: list[int], width: int) -> None:
    while parked and width > 0:
        place = heappop(parked)
        row = draft.peek(place)
        if row.state is READY and engine_gives(draft.steps[place], row):
            width -= _give_out(draft, place, draft.row(place))


def _give_out(draft: Draft, place: int, row: StepRow) -> int:
    """Dispatches a step and returns 1, or puts it to a person and returns 0."""
    if row.needs:
        # A compensation that stood ready or in a line, when something came late that goes first.
        draft.move(place, row, PENDING)
        return 0
    step = draft.steps[place]
    run = draft.run
    inputs = _NO_INPUTS
    if step.reads:
        try:
            inputs = draft.context.pack(step.reads)
        except MissingFields as error:
            seek(draft, place, row, error.fields, reason="missing_field")
            return 0
    if step.risk is not _NO_RISK and not approved(draft, place, row):
        ask_approval(draft, place, row)
        return 0
    effects: tuple[JournalEntry, ...] = ()
    size = _FRAME_BYTES + len(inputs) + utf8_bytes(step.goal)
    if len(step.writes) + len(step.may_write) > _FEW_FIELDS:
        size += sum(map(utf8_bytes, step.writes + step.may_write))
    if run.journal is not None and (journal := run.journal.get(place)) is not None:
        effects = tuple(effect.entry for effect in journal.effects)
        for entry in effects:
            size += entry_bytes(entry)
        if step.unknown is UnknownPolicy.PERSON and any(
            effect.entry.status is EffectStatus.UNKNOWN
            and not granted(row, row.epoch + 1, effect.intended_epoch)
            for effect in journal.effects
        ):
            detail = "an effect was intended, its outcome is unknown"
            ask(draft, place, row, reason="unknown_effect", detail=detail)
            return 0
    taking = NOTHING
    if step.role is _COMPENSATION:
        taking = what_to_take_back(draft, place, row)
        size += taking.bytes
    save = None
    if run.saves is not None:
        save = run.saves.get(place)
        size += len(save or b"")
    if draft.head.field_versions:
        size += versions_bytes(draft.head, (*step.reads, *taking.fields))
    policy = draft.now.policy
    if size > policy.dispatch_bytes_max:
        detail = f"about {size} bytes, the policy allows {policy.dispatch_bytes_max}"
        ask(draft, place, row, reason="handoff_too_large", detail=detail)
        return 0
    if by := barrier(draft, place, row):
        hold_back(draft, place, row, by)
        return 0
    _take_off(draft, place, row, inputs=inputs, effects=effects, save=save, taking=taking)
    return 1


def give_held(draft: Draft, place: int) -> None:
    """It is the turn of a step that was held: it goes, unless something else speaks against it."""
    head = draft.head
    row = draft.row(place)
    width = draft.now.policy.step_concurrency_max - head.tally[FLYING]
    if head.paused or head.gate or head.plan_open or width <= 0:
        # The run itself holds back: the step is ready, and others of the line have their turn.
        draft.move(place, row, READY)
        return
    _give_out(draft, place, row)


def _take_off(
    draft: Draft,
    place: int,
    row: StepRow,
    *,
    inputs: bytes,
    effects: tuple[JournalEntry, ...],
    save: bytes | None,
    taking: Taking,
) -> None:
    head, now, run, step = draft.head, draft.now, draft.run, draft.steps[place]
    policy = now.policy
    log_ms = now.clock.log_ms
    start_limit_ms = policy.start_limit_ms
    if now.points.holding and step.depends_on:
        # No permit outlives its lease unused.
        start_limit_ms = min(start_limit_ms, take_permits(draft, place) - log_ms)
    start_by = log_ms + start_limit_ms
    if row.epoch:
        head.redone += 1
    row.epoch += 1
    row.closed = ""
    if head.state not in _GOING:
        # It will be, once this unit is settled; the handoff names the version as of then.
        draft.facts = True
    queue = step.queue or policy.queues[0]
    field_versions: tuple[FieldVersion, ...] = ()
    if head.field_versions:
        field_versions = of_fields(head, (*step.reads, *taking.fields))
    # By position, in the order of the class: see there.
    handoff = Handoff(
        run.id,
        head.flow,
        head.flow_version,
        step.name,
        row.epoch,
        step.goal if row.repair is None else step.goal + hint(draft, place, row),
        inputs,
        head.run_version + draft.facts,
        recovery_key(run.id, step.name),
        log_ms,
        start_by,
        step.timeout_ms,
        step.heartbeat_ms,
        step.writes + step.may_write,
        effects,
        save,
        head.context_schema,
        head.context_schema_version,
        row.failures + row.infra,
        taking.step,
        taking.completed,
        taking.effects,
        taking.wrote,
        (),
        field_versions,
    )
    if taking is not NOTHING:
        row.undoes = taking.noted()
    action = Dispatch(queue, handoff, head.trace)
    offset, index, count = now.outbox.put("queue." + queue, action)
    row.flight = Flight(log_ms, start_by, offset, index, count)
    draft.move(place, row, DISPATCHED)
    row.due_ms = now.live_from_now(start_limit_ms)
    row.live = True


def settle(draft: Draft) -> None:
    """Says what the run is doing, from the counts of its steps; ends it when all are done."""
    head = draft.head
    tally = head.tally
    if head.left and tally[FLYING] and head.state is _RUNNING and not head.paused:
        # The most frequent case: the run goes on as it did.
        return
    if head.state in FINAL_RUNS:
        return
    if head.left == 0 and not head.plan_open:
        state, waiting = _finished(draft), ""
    elif head.paused:
        state, waiting = RunState.PAUSED, ""
    else:
        state, waiting = _doing(draft, tally)
        if head.saga is not None and waiting not in _PEOPLE:
            state = RunState.COMPENSATING
    head.waiting_for = waiting
    if head.saga is None:
        # A pause answers no question: the clock of a run that waits for people stands on.
        asked = _doing(draft, tally)[1] if head.paused else waiting
        stands = asked in _PEOPLE and draft.plan.plan.stop_clocks_for_people
        stands = stands or (waiting == _FREEZE and draft.now.policy.freeze_stops_clocks)
        if stands or head.clock_stopped_ms:
            _stop_clock(draft, stands=stands)
    else:
        _bound_waiting(draft)
    if state is not head.state:
        head.state = state
        draft.facts = True


def _finished(draft: Draft) -> RunState:
    if draft.head.saga is None:
        draft.reason = "all steps completed"
        return RunState.SUCCEEDED
    draft.reason = draft.head.saga.cause
    return RunState.COMPENSATED


def _stop_clock(draft: Draft, *, stands: bool) -> None:
    """The time to live stands still while the run waits for people, where its plan says so, and
    while its recovery is frozen, where the policy does.
    """
    head, log_ms = draft.head, draft.now.log_ms
    if stands and not head.clock_stopped_ms:
        # A time that is over does not stand still: it is due in this very record.
        if head.expires_ms > log_ms:
            head.clock_stopped_ms = log_ms
    elif not stands and head.clock_stopped_ms:
        head.expires_ms += log_ms - head.clock_stopped_ms
        head.clock_stopped_ms = 0


def _bound_waiting(draft: Draft) -> None:
    """Going back takes no longer for an outage than going forward might: then a person is asked."""
    head = draft.head
    if head.waiting_for != _FAULT_POINT:
        head.expires_ms = NEVER
    elif head.expires_ms == NEVER:
        head.expires_ms = draft.now.log_ms + head.ttl_ms


def _line(draft: Draft) -> str:
    """The line that the run waits in: the last one entered, as long as a step stands there."""
    head = draft.head
    first = ""
    for place in range(len(draft.steps)):
        row = draft.peek(place)
        if row.state is HELD and row.repair is not None:
            by: str = row.repair.by
            if by == head.held_by:
                return by
            first = first or by
    head.held_by = first
    return first


def _held_by(line: str) -> str:
    if line.startswith(POINT):
        return _FAULT_POINT
    return _FREEZE if line.startswith(FROZEN) else "turn"


def _doing(draft: Draft, tally: list[int]) -> tuple[RunState, str]:
    head = draft.head
    if tally[FLYING]:
        return RunState.RUNNING, ""
    if head.gate:
        return RunState.WAITING, "person"
    if head.plan_open:
        return RunState.WAITING, "plan"
    if tally[GOING]:
        return RunState.RUNNING, ""
    if tally[BLOCKED]:
        return RunState.WAITING, "person"
    if tally[ASKING]:
        return RunState.WAITING, "information"
    if tally[BACKING]:
        return RunState.WAITING, "time"
    if tally[HOLDING]:
        return RunState.WAITING, _held_by(_line(draft))
    return RunState.RUNNING, ""
