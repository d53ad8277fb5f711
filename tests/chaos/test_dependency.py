"""A dependency fails in every way that it can, returns, and is not run over by what waited for it.

What arrived and what was done is as the dependency itself counted it.
"""

from __future__ import annotations

import pytest
from benchmarks.outage_lab.service import Mode
from tests.chaos.inside.dependency import CAPACITY_PER_S
from tests.chaos.load import Bench

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1_800)]

RUNS = 200
PAUSE_MIN_S = 0.8  # the first pause between probes, at its shortest
FOUND_S = 6.0 + 2.0 + 5.0  # the longest pause, a probe that hangs, a loaded machine
NOT_PASSED_ON = (Mode.REFUSE, Mode.HANG, Mode.BUSY)


@pytest.mark.parametrize(
    "mode", [Mode.REFUSE, Mode.HANG, Mode.SLOW, Mode.BUSY, Mode.HALF_OPEN], ids=str
)
def test_a_dependency_that_returns_meets_no_storm_and_does_nothing_twice(
    bench: Bench, mode: Mode
) -> None:
    load, outage = bench.outage(mode, RUNS)
    # While it is away, one caller at a time asks for it.
    assert min(outage.probe_gaps_s) >= PAUSE_MIN_S
    assert outage.waited >= RUNS - 1
    if mode in NOT_PASSED_ON:
        assert outage.arrived_during == 0
    # Once it is back, that is found, and what waited arrives at the pace that it can bear.
    assert outage.found_after_s <= FOUND_S
    assert outage.peak_per_s <= 1.5 * CAPACITY_PER_S
    assert outage.tried_after <= 1.05 * RUNS + 20
    # Everything was served, and once, whatever was asked again.
    assert outage.served == outage.runs
    assert outage.served_twice == 0
    assert outage.repeats <= outage.tried_during + outage.tried_after - RUNS
    assert bench.judge(load).broken == []
