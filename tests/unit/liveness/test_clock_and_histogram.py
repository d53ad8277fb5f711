import itertools
import random

import pytest

from dalsegno.streams.core.liveness.clock import PartitionClock
from dalsegno.streams.core.liveness.histogram import BUCKETS, EDGES_MS, HALVE_ABOVE, GapHistogram


def test_the_clock_follows_append_time_and_skips_what_lies_beyond_its_cap() -> None:
    clock = PartitionClock(cap_ms=500)
    readings = [clock.advance(at_ms) for at_ms in (10_000, 10_250, 10_500, 19_000, 19_250)]
    assert readings == [0, 250, 500, 1_000, 1_250]


def test_append_time_that_goes_back_moves_nothing() -> None:
    clock = PartitionClock(cap_ms=500)
    readings = [clock.advance(at_ms) for at_ms in (10_000, 10_300, 8_600, 8_900, 10_400)]
    assert readings == [0, 300, 300, 300, 400]


def test_what_starts_ahead_of_the_heartbeats_starts_no_later_than_the_clock_can_get() -> None:
    clock = PartitionClock(cap_ms=500)
    clock.advance(10_000)
    ahead_ms = clock.latest_at(14_000)
    assert clock.latest_at(9_000) == 0
    for at_ms in range(10_100, 14_001, 100):
        clock.advance(at_ms)
    assert ahead_ms == clock.now_ms == 4_000


def test_the_percentile_is_that_of_the_samples_to_within_a_bucket() -> None:
    random.seed(4)
    gaps = [int(random.lognormvariate(7, 1)) for _ in range(HALVE_ABOVE)]
    histogram = GapHistogram()
    for gap_ms in gaps:
        histogram.add(gap_ms)
    exact_ms = sorted(gaps)[-(len(gaps) // 100) - 1]
    quantile_ms = histogram.quantile_ms()
    assert quantile_ms is not None
    assert exact_ms <= quantile_ms <= exact_ms * 1.45


def test_the_running_percentile_equals_one_from_scratch() -> None:
    random.seed(5)
    histogram, counts = GapHistogram(), [0] * BUCKETS
    for _ in range(5_000):
        gap_ms = int(2 ** random.uniform(0, 26))
        histogram.add(gap_ms)
        bucket = min([i for i, edge in enumerate(EDGES_MS) if edge >= gap_ms] or [BUCKETS - 1])
        counts[bucket] += 1
        if sum(counts) > HALVE_ABOVE:
            counts = [count // 2 for count in counts]
        reached = itertools.accumulate(counts)
        first = next(i for i, below in enumerate(reached) if below * 100 >= sum(counts) * 99)
        assert histogram.quantile_ms() == EDGES_MS[first]


def test_old_samples_fade() -> None:
    histogram = GapHistogram()
    for _ in range(HALVE_ABOVE):
        histogram.add(60_000)
    for _ in range(10 * HALVE_ABOVE):
        histogram.add(1_000)
    assert (histogram.quantile_ms() or 0) < 2_000


@pytest.mark.parametrize("gap_ms", [0, 1, 10**9])
def test_the_ends_of_the_scale_hold(gap_ms: int) -> None:
    histogram = GapHistogram()
    histogram.add(gap_ms)
    assert histogram.quantile_ms() == (EDGES_MS[-1] if gap_ms > 1 else 1)
    assert len(histogram) == 1


def test_no_sample_no_percentile() -> None:
    assert GapHistogram().quantile_ms() is None
