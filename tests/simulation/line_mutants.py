"""Deliberate bugs in lines: what a step passes that it should not, or its own run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from tests.simulation.core_mutants import everywhere
from tests.simulation.mutants import replaced

from dalsegno.schemas.plan import StepRole
from dalsegno.streams.core import dispatch
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.faultpoint.points import Points
from dalsegno.streams.core.recovery import barriers
from dalsegno.streams.core.recovery.holding import FROZEN, PACED, POINT

Bug = AbstractContextManager[Any]


def _barrier(passes: Callable[[Draft, int, Any, str], bool]) -> Bug:
    """Some steps are not held by some lines."""
    right = barriers.barrier

    def barrier(draft: Draft, place: int, row: Any) -> str:
        by = right(draft, place, row)
        return "" if by and passes(draft, place, row, by) else by

    def take(self: Points, depends_on: Any) -> Any:
        ways = self.in_the_way(depends_on)
        return tuple((view.name, view.take()) for view in ways if view.hand)

    stack = ExitStack()
    stack.enter_context(everywhere(right, barrier))
    stack.enter_context(replaced(Points, "take", take))
    return stack


def _is_back(draft: Draft, place: int) -> bool:
    return draft.steps[place].role is StepRole.COMPENSATION


def compensations_need_no_permit() -> Bug:
    """What is taken back goes to a dependency that is down."""
    return _barrier(lambda draft, place, row, by: by.startswith(POINT) and _is_back(draft, place))


def compensations_pass_a_freeze() -> Bug:
    """The first attempt of a compensation is no recovery to a freeze."""
    return _barrier(
        lambda draft, place, row, by: (
            by.startswith(FROZEN) and _is_back(draft, place) and not row.epoch
        )
    )


def a_release_passes_breakers() -> Bug:
    """Whose turn it is after a freeze goes, whatever its fault point says."""
    return _barrier(
        lambda draft, place, row, by: by.startswith(POINT) and draft.passes.startswith(FROZEN)
    )


def a_permit_passes_freezes() -> Bug:
    """Whoever gets a permit goes, frozen or not."""
    return _barrier(
        lambda draft, place, row, by: by.startswith(FROZEN) and draft.passes.startswith(POINT)
    )


def a_turn_of_the_pace_passes_breakers() -> Bug:
    """Whose turn it is in the pace of recovery goes, whatever its fault point says."""
    return _barrier(lambda draft, place, row, by: by.startswith(POINT) and draft.passes == PACED)


def a_person_passes_breakers() -> Bug:
    """A step that people were asked about needs no permit."""
    return _barrier(lambda draft, place, row, by: by.startswith(POINT) and row.handled is not None)


def an_approval_passes_freezes() -> Bug:
    """A step that was approved is not held by a freeze."""
    return _barrier(
        lambda draft, place, row, by: (
            by.startswith(FROZEN) and row.handled is not None and row.handled.approval is not None
        )
    )


def _turn(but: Callable[[Draft], None]) -> Bug:
    """What a step that has its turn does not look at."""

    right = dispatch.give_held

    def give_held(draft: Draft, place: int) -> None:
        kept = (draft.head.paused, draft.head.gate)
        but(draft)
        right(draft, place)
        draft.head.paused, draft.head.gate = kept

    return everywhere(right, give_held)


def a_turn_ignores_a_pause() -> Bug:
    """A permit, or a release, lets go a step of a run that is paused."""

    def unpause(draft: Draft) -> None:
        draft.head.paused = False

    return _turn(unpause)


def a_turn_ignores_a_gate() -> Bug:
    """A permit, or a release, lets go a step of a run that a gate holds."""

    def ungate(draft: Draft) -> None:
        draft.head.gate = ""

    return _turn(ungate)
