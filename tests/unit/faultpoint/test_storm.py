"""A dependency returns under many runs: the promises of the benchmark, scaled down."""

import msgspec
import pytest
from benchmarks.storm import measure

from dalsegno.streams.core.faultpoint import declared
from dalsegno.streams.core.faultpoint.settings import DEFAULTS
from dalsegno.streams.core.faultpoint.steer import Steering


@pytest.mark.parametrize("seed", range(4))
def test_all_recover_and_the_return_brings_no_storm(seed: int) -> None:
    assert measure("fault points", 1_000, seed, outage_s=20.0).misses() == []


def test_more_runs_recover_at_the_pace_of_the_dependency() -> None:
    got = measure("fault points", 4_000, 1, outage_s=30.0)
    assert got.misses() == []
    assert got.ratio <= 1.2


def test_a_long_outage_does_not_delay_the_return() -> None:
    got = measure("fault points", 1_000, 3, outage_s=600.0)
    assert got.misses() == []
    assert got.wasted < 1.5


@pytest.mark.parametrize("case", ["full jitter alone", "breaker alone"])
def test_the_same_world_is_cruel_to_others(case: str) -> None:
    assert measure(case, 1_000, 1, outage_s=20.0).misses() != []


def test_a_breaker_that_lets_its_queue_go_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    ramp = Steering._ramp

    def all_at_once(self: Steering, reason: str) -> None:
        ramp(self, reason)
        self._point.window.size_x = 1_000_000

    monkeypatch.setattr(Steering, "_ramp", all_at_once)
    assert measure("fault points", 1_000, 1, outage_s=20.0).misses() != []


def test_a_window_that_learns_nothing_from_delay_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blind = msgspec.structs.replace(DEFAULTS, slow_percent=1_000_000)
    monkeypatch.setattr(declared, "DEFAULTS", blind)
    assert measure("fault points", 2_000, 1, outage_s=20.0).misses() != []
