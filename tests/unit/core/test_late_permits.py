"""Permits that were long on their way, because who gave them died: nothing goes beside what was
given in their place.
"""

from __future__ import annotations

import pytest
from tests.unit.core.log import assert_restores, handoffs
from tests.unit.core.point_log import LEASE_MS, PointLog

from dalsegno.schemas.control import BreakerState, FaultPointChanged, QuotaGranted
from dalsegno.schemas.outputs import Handoff


class Late(PointLog):
    """Orders that were given `late_ms` ago, by a clock that is `apart_ms` behind."""

    apart_ms = 0

    def number_of(self, late_ms: int) -> int:
        self.number = max(self.number + 1, (self.now_ms - self.apart_ms - late_ms) << 12)
        return self.number

    def opened(self) -> None:
        """In time; and three steps wait."""
        self.put(
            FaultPointChanged(
                partition=0, number=self.number_of(0), fault_point="pay",
                state=BreakerState.CLOSED, window=8,
            )
        )  # fmt: skip
        assert self.runs(3, "pay") == []

    def given(self, late_ms: int, permits: int = 1) -> list[Handoff]:
        """Permits come so late; returns what goes."""
        number = self.number_of(late_ms)
        return handoffs(
            self.put(
                QuotaGranted(
                    partition=0, number=number, fault_point="pay", permits=permits,
                    lease_ms=LEASE_MS,
                )
            )
        )  # fmt: skip


@pytest.mark.parametrize("apart_ms", [0, 3_600_000, -3_600_000])
def test_what_is_later_than_the_actor_waits_for_lets_nothing_go(apart_ms: int) -> None:
    log = Late()
    log.apart_ms = apart_ms
    log.opened()
    log.now_ms += 60_000
    assert log.given(2 * LEASE_MS + 10) == []
    assert_restores(log)
    assert len(log.given(0)) == 1, "and the next that comes in time does"


@pytest.mark.parametrize(
    ("late_ms", "good_ms"),
    [(0, LEASE_MS), (LEASE_MS, LEASE_MS), (LEASE_MS + 4_000, LEASE_MS - 4_000)],
)
def test_a_permit_is_good_until_the_actor_gives_it_up(late_ms: int, good_ms: int) -> None:
    log = Late()
    log.opened()
    log.now_ms += 60_000
    (handoff,) = log.given(late_ms)
    assert handoff.start_by_ms - handoff.dispatched_at_ms in range(good_ms - 5, good_ms + 1)


def test_clocks_that_move_apart_hold_nothing_up_for_ever() -> None:
    log = Late()
    log.opened()
    log.apart_ms = 5 * LEASE_MS
    for _ in range(10):
        log.now_ms += 1_000
        if log.given(0):
            break
    else:
        pytest.fail("no permit is ever good again")
