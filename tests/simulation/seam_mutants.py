"""Deliberate bugs where parts of the product meet: each part keeps its own promises all the same.

Only the world of all parts can find them: the worlds of one part have nothing on the other side.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import msgspec
from msgspec.structs import replace
from tests.simulation.actors import Actor
from tests.simulation.core_mutants import everywhere
from tests.simulation.deciders import SECRET
from tests.simulation.line_mutants import (
    a_permit_passes_freezes,
    a_person_passes_breakers,
    a_release_passes_breakers,
    a_turn_ignores_a_gate,
    a_turn_ignores_a_pause,
    a_turn_of_the_pace_passes_breakers,
    an_approval_passes_freezes,
    compensations_need_no_permit,
    compensations_pass_a_freeze,
)
from tests.simulation.log import Entry, Producer
from tests.simulation.moods import QUEUED
from tests.simulation.mutants import Mutant, replaced

from dalsegno.schemas.control import PolicySet, RulesChanged
from dalsegno.schemas.outputs import StepState
from dalsegno.streams.core.actions import Dispatch
from dalsegno.streams.core.controls import Controls
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.faultpoint import attempts
from dalsegno.streams.core.faultpoint.points import Points
from dalsegno.streams.core.people import decisions
from dalsegno.streams.core.recovery import adopting, giving_up, seeking
from dalsegno.streams.core.recovery.freezing import Freezes
from dalsegno.streams.core.saga import beginning

Bug = AbstractContextManager[Any]
_ASIDE = {StepState.AWAITING_APPROVAL, StepState.ESCALATED, StepState.MISSING_INFO}


def _turned(leaves: Callable[[Any], bool]) -> Bug:
    """Some of what goes forward is not stopped when the run turns round."""
    right = beginning._stop

    def stop(draft: Draft, place: int, row: Any, *, busy: bool) -> None:
        if busy or not leaves(row):
            right(draft, place, row, busy=busy)

    return everywhere(right, stop)


def held_steps_go_forward() -> Bug:
    """A step in a line keeps its place when its run turns round."""
    return _turned(lambda row: row.state is StepState.HELD)


def asked_steps_go_forward() -> Bug:
    """A question to a person stays open when the run turns round."""
    return _turned(lambda row: row.state in _ASIDE)


def facts_wake_a_run_that_goes_back() -> Bug:
    """A step that misses a fact goes on when it comes, forward or back."""
    right_begin, right_stop = beginning.begin, beginning._stop

    def stop(draft: Draft, place: int, row: Any, *, busy: bool) -> None:
        if busy or row.state is not StepState.MISSING_INFO:
            right_stop(draft, place, row, busy=busy)

    def begin(draft: Draft, undo: Any, cause: str, detail: str) -> None:
        missing = draft.head.missing
        beginning._stop = stop
        try:
            right_begin(draft, undo, cause, detail)
        finally:
            beginning._stop = right_stop
        draft.head.missing = missing

    return everywhere(right_begin, begin)


def a_gate_outlives_the_turn() -> Bug:
    """A run that goes back is still asked whether it may go on."""
    right = beginning.begin

    def begin(draft: Draft, undo: Any, cause: str, detail: str) -> None:
        head = draft.head
        gate = (head.gate, head.gate_due_ms, head.people)
        right(draft, undo, cause, detail)
        if gate[0]:
            head.gate, head.gate_due_ms = gate[:2]
            head.people = gate[2]

    return everywhere(right, begin)


def turned_runs_stay_out() -> Bug:
    """Attempts that are stopped because their run turns round stay counted on their fault point."""
    right = attempts._flights

    def flights(points: Points, draft: Draft) -> None:
        if draft.run.head.saga is None and draft.head.saga is not None:
            return
        right(points, draft)

    return everywhere(right, flights)


def turned_runs_are_still_in_pace() -> Bug:
    """Attempts that are stopped because their run turns round stay counted in the pace."""
    right = adopting.count_pace

    def count_pace(recovery: Any, log_ms: int, before: Any, after: Any) -> None:
        if before.saga is None and after.saga is not None:
            return
        right(recovery, log_ms, before, after)

    return everywhere(right, count_pace)


def _controlled(also: Callable[[Controls, Any], None]) -> Bug:
    right = Controls.apply

    def apply(self: Controls, event: Any) -> Any:
        ruling = right(self, event)
        also(self, event)
        return ruling

    return replaced(Controls, "apply", apply)


def a_policy_opens_the_way() -> Bug:
    """A new policy makes a partition forget which fault points hold."""

    def forget(controls: Controls, event: Any) -> None:
        if isinstance(event, PolicySet) and event.number > 1:
            controls._now.points.holding = {}

    return _controlled(forget)


def a_policy_thaws() -> Bug:
    """A new policy makes a partition forget what is frozen."""

    def thaw(controls: Controls, event: Any) -> None:
        if isinstance(event, PolicySet) and event.number > 1:
            controls._now.recovery.freezes = Freezes()

    return _controlled(thaw)


def new_rules_open_the_way() -> Bug:
    """New rules begin with fault points that hold nothing."""

    def forget(controls: Controls, event: Any) -> None:
        if isinstance(event, RulesChanged):
            controls._now.points.holding = {}

    return _controlled(forget)


def what_is_out_just_expires() -> Bug:
    """Only what waits to be brought back is put to a person when the run's time is over."""
    right = giving_up.is_brought_back
    return everywhere(right, lambda row: row.flight is None and right(row))


def silent_suppliers_are_waited_for() -> Bug:
    """Nobody is asked when a supplier's time is over."""
    return everywhere(seeking.overdue, lambda draft, place, row: False)


def _questions(change: Callable[[Dispatch], Dispatch]) -> Bug:
    """Questions to the supplier go out otherwise."""
    return replaced(seeking, "Dispatch", lambda *what: change(Dispatch(*what)))


def questions_are_work() -> Bug:
    """A question is like any handoff to workers."""
    return _questions(lambda asked: replace(asked, queue="default"))


def questions_show_everything() -> Bug:
    """A supplier is shown more than the step that asks may read."""
    shown = msgspec.msgpack.encode({"card": SECRET, "everything": True})
    return _questions(lambda asked: replace(asked, handoff=replace(asked.handoff, inputs=shown)))


def stale_packages_count() -> Bug:
    """A decision is taken although what was shown has moved."""
    return replaced(decisions, "moved", lambda draft, place, ask: False)


def actor_keeps_before_its_orders_are_out() -> Bug:
    """An actor's checkpoint may say "done" about orders that never left."""

    class Hasty(Producer):
        def send(self, *args: Any, **named: Any) -> Any:
            ack = super().send(*args, **named)
            self.renew()
            done = type(ack)()
            done.resolve(SENT)
            return done

    def make(self: Actor) -> Any:
        return Hasty(self.world.network, self.engine.process)

    return replaced(Actor, "orders_producer", make)


SENT = Entry(-1, 0, "", None)


def actor_begins_at_the_end() -> Bug:
    """An actor that has restored goes on with what comes from now on."""
    right = Actor.open

    def opened(self: Actor) -> Any:
        yield from right(self)
        self.fold.position = self.log.end

    return replaced(Actor, "open", opened)


def actor_forgets_what_waits() -> Bug:
    """A restored actor does not know which partitions wait."""
    right = Actor.restore

    def restore(self: Actor, parts: Any) -> Any:
        fold = right(self, parts)
        for point in fold.points.values():
            for side in point.sides.values():
                side.waiting = 0
        return fold

    return replaced(Actor, "restore", restore)


class SeamMutant(Mutant, frozen=True):
    """`mood`: of the worlds in which the seam comes up."""

    mood: str = ""


_BUGS: dict[str, tuple[Callable[[], Bug], ...]] = {
    "outage and going back": (
        compensations_need_no_permit,
        held_steps_go_forward,
        actor_keeps_before_its_orders_are_out,
        actor_begins_at_the_end,
    ),
    "freezes and outages": (
        a_release_passes_breakers,
        a_permit_passes_freezes,
        a_turn_of_the_pace_passes_breakers,
        a_policy_opens_the_way,
        a_policy_thaws,
        new_rules_open_the_way,
    ),
    "freezes and going back": (
        compensations_pass_a_freeze,
        turned_runs_are_still_in_pace,
        turned_runs_stay_out,
        actor_forgets_what_waits,
    ),
    "people and outages": (
        a_person_passes_breakers,
        what_is_out_just_expires,
        an_approval_passes_freezes,
    ),
    "people and going back": (
        asked_steps_go_forward,
        a_gate_outlives_the_turn,
    ),
    "facts and going back": (facts_wake_a_run_that_goes_back,),
    "people and facts": (stale_packages_count,),
    QUEUED: (silent_suppliers_are_waited_for, questions_are_work, questions_show_everything),
    "pauses and lines": (
        a_turn_ignores_a_pause,
        a_turn_ignores_a_gate,
    ),
}
SEAM_MUTANTS = tuple(
    SeamMutant(bug.__name__.replace("_", " "), bug, 250, mood)
    for mood, bugs in _BUGS.items()
    for bug in bugs
)
