"""Deliberate bugs of sagas: functions of the core replaced by ones that are wrong."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import msgspec
from tests.simulation.core_mutants import everywhere
from tests.simulation.mutants import Mutant

from dalsegno.schemas.outputs import EffectStatus
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.saga import beginning, handing, looking, planning, taking_back
from dalsegno.streams.core.saga.planning import StepPast, Undoing
from dalsegno.streams.core.step_table import COMPENSATED, COMPENSATING, COMPLETED, PENDING

Bug = Callable[[], AbstractContextManager[Any]]


def order_ignored() -> AbstractContextManager[None]:
    """Everything is taken back at once, whatever depends on it."""
    return everywhere(planning.held_back, lambda plan, busy: (0,) * len(plan.steps))


def never_done_is_undone() -> AbstractContextManager[Any]:
    """Steps that did nothing are taken back as if they had completed."""

    def past_of(draft: Draft, place: int, row: Any) -> StepPast:
        del row
        return StepPast(completed=True, effects=looking.effects_of(draft, place))

    def pasts(draft: Draft) -> dict[int, StepPast]:
        return {place: past_of(draft, place, None) for place in draft.plan.order}

    stack = ExitStack()
    stack.enter_context(everywhere(looking.past_of, past_of))
    stack.enter_context(everywhere(looking.pasts, pasts))
    return stack


def unknown_is_skipped() -> AbstractContextManager[None]:
    """What may have been done counts as not done."""
    right = planning.undoing_of

    def undoing_of(plan: Any, place: int, past: StepPast, claimed: Any) -> Undoing:
        sure = tuple(e for e in past.effects if e.entry.status is EffectStatus.CONFIRMED)
        return right(plan, place, StepPast(past.completed, sure), claimed)

    return everywhere(planning.undoing_of, undoing_of)


def late_effects_unheard() -> AbstractContextManager[None]:
    """What an attempt that lost its step still did stays done."""
    return everywhere(taking_back.heard_late, lambda draft, place: None)


def one_for_all() -> AbstractContextManager[None]:
    """A step is compensated as soon as its compensation is out, whatever comes of it."""
    right = taking_back.release

    def release(draft: Draft, place: int) -> None:
        right(draft, place)
        row = draft.row(place)
        if row.state is COMPENSATING:
            draft.move(place, row, COMPENSATED)
            draft.head.left -= 1

    return everywhere(taking_back.release, release)


def more_known_is_ignored() -> AbstractContextManager[None]:
    """A compensation never runs again with what came while it was out, or after."""
    return everywhere(
        taking_back._has_to_run, lambda draft, unit: draft.peek(unit.by).state is PENDING
    )


def forward_goes_on() -> AbstractContextManager[None]:
    """Steps that had not completed go on while the rest is taken back."""
    right = beginning._stop

    def stop(draft: Draft, place: int, row: Any, *, busy: bool) -> None:
        if busy or row.state is COMPLETED or row.flight is not None:
            right(draft, place, row, busy=busy)

    return everywhere(beginning._stop, stop)


def pivots_ignored() -> AbstractContextManager[None]:
    """A run goes back although its pivot was passed."""
    return everywhere(looking.past_pivot, lambda draft: "")


def cancel_leaves_it() -> AbstractContextManager[None]:
    """A cancel, or the end of its time, ends a run as it is."""
    return everywhere(beginning.end_or_go_back, lambda draft, cause, detail="": False)


def stale_statuses() -> AbstractContextManager[None]:
    """A compensation is told that nothing is known of what was done."""
    right = handing.what_to_take_back

    def what(draft: Draft, by: int, row: Any) -> Any:
        taking = right(draft, by, row)
        unknown = tuple(
            msgspec.structs.replace(entry, status=EffectStatus.UNKNOWN) for entry in taking.effects
        )
        return msgspec.structs.replace(taking, effects=unknown)

    return everywhere(handing.what_to_take_back, what)


def last_effect_forgotten() -> AbstractContextManager[None]:
    """Of several effects of a step, the last is not taken back."""
    right = handing.what_to_take_back

    def what(draft: Draft, by: int, row: Any) -> Any:
        taking = right(draft, by, row)
        return msgspec.structs.replace(taking, effects=taking.effects[:-1])

    return everywhere(handing.what_to_take_back, what)


_BUGS: tuple[tuple[str, Bug], ...] = (
    ("the order of compensations is ignored", order_ignored),
    ("what was never done is taken back", never_done_is_undone),
    ("what may have been done is skipped", unknown_is_skipped),
    ("late effects are not heard", late_effects_unheard),
    ("compensated before the compensation is done", one_for_all),
    ("what became known meanwhile is ignored", more_known_is_ignored),
    ("a run goes forward and back", forward_goes_on),
    ("a pivot is ignored", pivots_ignored),
    ("a cancel leaves what was done", cancel_leaves_it),
    ("a compensation is told old news", stale_statuses),
    ("the last effect is forgotten", last_effect_forgotten),
)
SAGA_MUTANTS = tuple(Mutant(name, bug, 400) for name, bug in _BUGS)
