"""What each decision does. A function returns why it cannot, and has changed nothing then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from dalsegno.schemas.control import DecisionMade, DecisionType
from dalsegno.schemas.outputs import RunState
from dalsegno.streams.core.context import ContextError, WriteRefused
from dalsegno.streams.core.context_versions import note_versions
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.escalating import gate_step, open_gate
from dalsegno.streams.core.forms import misfit
from dalsegno.streams.core.information import recheck_missing
from dalsegno.streams.core.lifecycle import cancel_run, fail_run
from dalsegno.streams.core.moment import Ruling, refused
from dalsegno.streams.core.names import DETAIL_CHARS_MAX
from dalsegno.streams.core.people.approvals import approve, awaits_no_more
from dalsegno.streams.core.people.asking import ask_again
from dalsegno.streams.core.people.granting import grant_next
from dalsegno.streams.core.people.options import APPROVAL, editable, needed_of_skipped
from dalsegno.streams.core.people.origins import note_outside
from dalsegno.streams.core.people.state import NOBODY, NOT_HANDLED
from dalsegno.streams.core.people.undoing import done_by_hand, undo_now
from dalsegno.streams.core.rows import StepRow
from dalsegno.streams.core.runstate import NEVER
from dalsegno.streams.core.step_table import PENDING, READY, SKIPPED

Take = Callable[[Draft, int | None, DecisionMade], Ruling | None]
# An empty MessagePack array of operations, and nothing at all.
_NO_OPS: Final = frozenset({b"", b"\x90"})


def _retry(draft: Draft, place: int | None, event: DecisionMade) -> Ruling | None:
    if event.ops not in _NO_OPS:
        return refused("ops_not_taken", "a retry changes no field: edit does")
    if place is None:
        return _resume(draft)
    grant_next(draft.row(place))
    _again(draft, place)
    return None


def _resume(draft: Draft) -> Ruling | None:
    """The quarantined run is as it was before the unit that raised; `settle` says what it does."""
    head = draft.head
    assert head.state is RunState.QUARANTINED, "only such a run is retried as a whole"
    head.quarantine = ""
    head.state = RunState.RUNNING
    if head.saga is not None:
        head.state, head.expires_ms = RunState.COMPENSATING, NEVER
    people = head.people or NOBODY
    head.people = msgspec.structs.replace(people, aside=None)
    return None


def _again(draft: Draft, place: int) -> None:
    """The step's next attempt may come, with both budgets as new."""
    row = draft.row(place)
    row.failures = row.infra = 0
    if row.past is not None and (row.past.missing or row.past.delay_ms):
        row.past = msgspec.structs.replace(row.past, missing=(), delay_ms=0)
    head = draft.head
    if place in head.missing:
        head.missing = tuple(each for each in head.missing if each != place)
    _closed(draft, place, row)
    draft.again(place, row)


def _closed(draft: Draft, place: int, row: StepRow) -> None:
    """The question is answered; with an unsafe step the gate that it closed opens.

    Unless the gate has a question of its own by now.
    """
    row.handled = (row.handled or NOT_HANDLED).closed()
    awaits_no_more(draft, place)
    people = draft.head.people
    if gate_step(draft) == place and (people is None or people.gate is None):
        open_gate(draft, place)


def _write(draft: Draft, event: DecisionMade, allowed: frozenset[str]) -> Ruling | None:
    try:
        draft.change = draft.run.context.apply(event.ops, draft.now.policy, allowed=allowed)
        note_versions(draft, draft.change, 0)
    except WriteRefused as error:
        fields = ", ".join(sorted(allowed)) or "nothing"
        said = f"{event.decision} may change {fields} here, not {error.field}"
        return refused("bad_ops", said[:DETAIL_CHARS_MAX])
    except ContextError as error:
        return refused("bad_ops", str(error))
    if fault := misfit(draft, draft.change.changed, draft.change):
        return refused("wrong_type", fault)
    note_outside(draft, draft.change.changed, event.decided_by)
    return None


def _supply(draft: Draft, place: int | None, event: DecisionMade) -> Ruling | None:
    assert place is not None, "only a step misses fields"
    past = draft.peek(place).past
    missing = past.missing if past is not None else ()
    refusal = _write(draft, event, frozenset(missing))
    if refusal is not None:
        return refusal
    if still := draft.context.missing(missing):
        return refused("still_missing", ", ".join(still))
    _again(draft, place)
    recheck_missing(draft)
    return None


def _edit(draft: Draft, place: int | None, event: DecisionMade) -> Ruling | None:
    assert place is not None, "fields are edited for a step"
    refusal = _write(draft, event, frozenset(editable(draft, place)))
    if refusal is not None:
        return refusal
    row = draft.row(place)
    ask = row.handled.ask if row.handled is not None else None
    if ask is not None and ask.asked == APPROVAL:
        # Whoever edits has not approved: the next package shows what the step would read now.
        row.due_ms = ask_again(draft, place, ask)
    else:
        _again(draft, place)
    recheck_missing(draft)
    return None


def _skip(draft: Draft, place: int | None, event: DecisionMade) -> Ruling | None:
    assert place is not None, "only a step is skipped"
    head = draft.head
    if head.saga is not None:
        head.missing = tuple(each for each in head.missing if each != place)
        _closed(draft, place, draft.row(place))
        done_by_hand(draft, place)
        return None
    if event.ops not in _NO_OPS:
        refusal = _write(draft, event, draft.plan.writes[place])
        if refusal is not None:
            return refusal
    if absent := needed_of_skipped(draft, place):
        return refused("still_missing", "later steps read " + ", ".join(absent))
    row = draft.row(place)
    head.missing = tuple(each for each in head.missing if each != place)
    _closed(draft, place, row)
    draft.move(place, row, SKIPPED)
    head.left -= 1
    # What stands behind one that was run again for a missing field went on the first time.
    if row.repair is None or not row.repair.supplies:
        for behind in draft.plan.graph.dependents[place]:
            waiting = draft.row(behind)
            waiting.needs -= 1
            if waiting.needs == 0 and waiting.state is PENDING:
                draft.move(behind, waiting, READY)
    if draft.change is not None:
        recheck_missing(draft)
    return None


def _approve(draft: Draft, place: int | None, event: DecisionMade) -> Ruling | None:
    head = draft.head
    if place is None:
        head.people = msgspec.structs.replace(head.people or NOBODY, gate=None)
        open_gate(draft)
        return None
    row = draft.row(place)
    approve(draft, place, row, event.decided_by)
    _closed(draft, place, row)
    draft.again(place, row)
    return None


def _reject(draft: Draft, place: int | None, event: DecisionMade) -> Ruling | None:
    del place
    del event
    fail_run(draft, "rejected")
    return None


def _cancel(draft: Draft, place: int | None, event: DecisionMade) -> Ruling | None:
    del place, event
    if draft.head.saga is None:
        cancel_run(draft)
    else:
        fail_run(draft, "cancelled")
    return None


def _compensate(draft: Draft, place: int | None, event: DecisionMade) -> Ruling | None:
    del place
    return undo_now(draft, f"decided by {event.decided_by}")


TAKE: Final[dict[DecisionType, Take]] = {
    DecisionType.RETRY: _retry,
    DecisionType.SUPPLY: _supply,
    DecisionType.EDIT: _edit,
    DecisionType.SKIP: _skip,
    DecisionType.COMPENSATE: _compensate,
    DecisionType.APPROVE: _approve,
    DecisionType.REJECT: _reject,
    DecisionType.CANCEL: _cancel,
}
