"""Deliberate bugs in how a slow dependency is noticed; the simulation must find every one."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno.streams.core.faultpoint import slowness
from dalsegno.streams.core.faultpoint.points import Points
from dalsegno.streams.core.faultpoint.slowness import Streak
from dalsegno.streams.core.faultpoint.steer import Steering
from dalsegno.streams.core.faultpoint.view import View

Patch = pytest.MonkeyPatch


def nobody_is_told_that_it_is_slow(patch: Patch) -> None:
    patch.setattr(View, "slowed", lambda self, count: None)


def the_actor_takes_no_notice(patch: Patch) -> None:
    whole = Steering._ramp

    def ramp(self: Steering, reason: str) -> None:
        if "slow" not in reason:
            whole(self, reason)

    patch.setattr(Steering, "_ramp", ramp)


def a_restore_forgets_the_streak(patch: Patch) -> None:
    whole = Points.load

    def load(self: Points, part: Any) -> None:
        part.streaks = []
        whole(self, part)

    patch.setattr(Points, "load", load)


def a_few_slow_ones_are_enough(patch: Patch) -> None:
    patch.setattr(slowness, "STREAK", 1)
    patch.setattr(slowness, "AFTER", 0)
    patch.setattr("dalsegno.streams.core.faultpoint.points.SLOW_MS_MIN", 0)
    patch.setattr(slowness, "SLOW_MS_MIN", 0)
    patch.setattr(slowness, "_TIMES_USUAL", 1)


def what_is_slow_is_usual_at_once(patch: Patch) -> None:
    patch.setattr(Streak, "kept_ms", lambda self, kind, usual_ms: 10 * usual_ms)


MUTANTS = [
    nobody_is_told_that_it_is_slow,
    the_actor_takes_no_notice,
    a_restore_forgets_the_streak,
    a_few_slow_ones_are_enough,
    what_is_slow_is_usual_at_once,
]
