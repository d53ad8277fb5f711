"""Deliberate bugs in fault points, each a patch; the simulation must find every one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dalsegno.streams.core.faultpoint import attempts, declared
from dalsegno.streams.core.faultpoint.point import Phase
from dalsegno.streams.core.faultpoint.points import Points
from dalsegno.streams.core.faultpoint.settings import DEFAULTS
from dalsegno.streams.core.faultpoint.sides import Side
from dalsegno.streams.core.faultpoint.steer import Steering
from dalsegno.streams.core.faultpoint.view import View
from dalsegno.streams.core.quotas import Quotas

Patch = pytest.MonkeyPatch


def permits_are_spent_twice(patch: Patch) -> None:
    patch.setattr(View, "take", lambda self: self.hand[0][0])


def only_the_first_dependency_is_asked(patch: Patch) -> None:
    whole = Points.blocked

    def blocked(self: Points, depends_on: Any) -> str:
        return whole(self, tuple(sorted(depends_on))[:1])

    def take(self: Points, depends_on: Any) -> Any:
        ways = self.in_the_way(depends_on)
        return tuple((view.name, view.take()) for view in ways if view.hand)

    patch.setattr(Points, "blocked", blocked)
    patch.setattr(Points, "take", take)


def a_closing_breaker_lets_the_queue_go(patch: Patch) -> None:
    whole = Steering._ramp

    def ramp(self: Steering, reason: str) -> None:
        whole(self, reason)
        self._point.window.size_x = 10_000_000

    patch.setattr(Steering, "_ramp", ramp)


def a_repeated_report_counts_again(patch: Patch) -> None:
    patch.setattr(Side, "is_new", lambda self, report: True)


def an_attempt_that_ended_is_still_out(patch: Patch) -> None:
    patch.setattr(Points, "landed", lambda self, key: None)


def nobody_is_told_that_steps_wait(patch: Patch) -> None:
    patch.setattr(Points, "demand", lambda self, name: None)


def a_handoff_may_start_after_its_lease(patch: Patch) -> None:
    whole = attempts.take_permits

    def take(draft: Any, place: int) -> int:
        whole(draft, place)
        return 1 << 62

    patch.setattr("dalsegno.streams.core.dispatch.take_permits", take)


def what_is_healthy_again_keeps_its_line(patch: Patch) -> None:
    whole = Points.changed

    def changed(self: Points, event: Any, offset: int) -> bool:
        whole(self, event, offset)
        return False

    patch.setattr(Points, "changed", changed)


def a_quota_serves_only_one(patch: Patch) -> None:
    def serve(self: Quotas, name: str) -> None:
        self._releasing.release("point:" + name)

    patch.setattr(Quotas, "_serve", serve)


def two_probes_at_once(patch: Patch) -> None:
    whole = Steering._grant

    def grant(self: Steering, partition: int, permits: int) -> int:
        return whole(self, partition, permits + (self._point.phase is Phase.HALF_OPEN))

    patch.setattr(Steering, "_grant", grant)


def any_success_closes_the_breaker(patch: Patch) -> None:
    def probing(self: Steering, report: Any, side: Side) -> None:
        if report.successes or report.failures == 0:
            self._ramp("somebody was well")
        else:
            self._open("the probe failed")

    patch.setattr(Steering, "_while_probing", probing)


def the_window_is_given_to_each_partition(patch: Patch) -> None:
    whole = Steering._ration

    def ration(self: Steering) -> None:
        whole(self)
        for number, side in list(self._point.sides.items()):
            if side.wants:
                self._grant(number, min(side.wants, self._point.size))

    patch.setattr(Steering, "_ration", ration)


def pauses_begin_anew_each_time(patch: Patch) -> None:
    whole = Steering._open

    def reopen(self: Steering, reason: str) -> None:
        self._point.openings = self._point.open_ms = 0
        whole(self, reason)

    patch.setattr(Steering, "_open", reopen)


def a_checkpoint_forgets_permits_in_hand_and_what_is_due(patch: Patch) -> None:
    whole = Points.load

    def load(self: Points, part: Any) -> None:
        for view in part.views:
            view.due_ms = 0
            view.hand = []
        whole(self, part)

    patch.setattr(Points, "load", load)


def after_a_restore_nothing_is_out(patch: Patch) -> None:
    patch.setattr(Quotas, "load", lambda self: None)


def a_lost_probe_is_waited_for_for_ever(patch: Patch) -> None:
    endless = msgspec.structs.replace(DEFAULTS, lease_ms=10**9)
    patch.setattr(declared.Declared, "settings", lambda self, point: endless)
    patch.setattr(View, "report", _without_running(View.report))


def _without_running(whole: Callable[..., Any]) -> Callable[..., Any]:
    def report(self: View, *given: Any, **more: Any) -> Any:
        return whole(self, *given, **{**more, "running": 1})

    return report


MUTANTS = [
    permits_are_spent_twice,
    only_the_first_dependency_is_asked,
    a_closing_breaker_lets_the_queue_go,
    a_repeated_report_counts_again,
    an_attempt_that_ended_is_still_out,
    nobody_is_told_that_steps_wait,
    a_handoff_may_start_after_its_lease,
    what_is_healthy_again_keeps_its_line,
    a_quota_serves_only_one,
    two_probes_at_once,
    any_success_closes_the_breaker,
    the_window_is_given_to_each_partition,
    pauses_begin_anew_each_time,
    a_checkpoint_forgets_permits_in_hand_and_what_is_due,
    after_a_restore_nothing_is_out,
    a_lost_probe_is_waited_for_for_ever,
]
