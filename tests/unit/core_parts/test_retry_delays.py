"""Delays: FAULTS R157."""

import random

import pytest

from dalsegno.schemas.control import Policy
from dalsegno.schemas.plan import RetryPolicy
from dalsegno.streams.core.retry import ceiling_ms, delay_ms, redispatch_ms

POLICY = Policy()


@pytest.mark.parametrize("initial", [0, 1, 7, 500, 60_000])
@pytest.mark.parametrize("factor", [100, 101, 200, 1_000])
def test_a_delay_lies_in_the_upper_half_of_its_ceiling_and_is_never_negative(initial, factor):
    policy = RetryPolicy(initial_ms=initial, max_ms=60_000, factor_percent=factor)
    before = 0
    for failures in [*range(1, 101), 10_000, 10**9]:
        ceiling = ceiling_ms(policy, failures)
        assert before <= ceiling <= 60_000
        before = ceiling
        delays = {delay_ms(policy, "r", "s", epoch, failures) for epoch in range(40)}
        assert all(ceiling <= 2 * delay <= 2 * ceiling for delay in delays)
        assert (0 in delays) == (initial == 0)


def test_both_ends_of_the_jitter_are_reached_and_runs_are_spread():
    policy = RetryPolicy(initial_ms=10, max_ms=10)
    assert {delay_ms(policy, f"r{i}", "s", 1, 1) for i in range(400)} == {5, 6, 7, 8, 9, 10}


def test_a_delay_is_a_function_of_its_arguments_alone():
    policy = RetryPolicy(initial_ms=10_000, max_ms=60_000)
    assert delay_ms(policy, "run", "step", 1, 2) == delay_ms(policy, "run", "step", 1, 2) == GOLDEN
    others = {
        delay_ms(policy, *who)
        for who in [("run", "step", 2, 2), ("runs", "tep", 1, 2), ("run2", "step", 1, 2)]
    }
    assert len(others | {GOLDEN}) == 4


GOLDEN = 10726


def test_redispatches_come_at_growing_intervals():
    before = 0
    for expiries in range(1, 30):
        delay = redispatch_ms(POLICY, "r", "s", random.Random(expiries).randrange(99), expiries)
        assert min(500 * 2 ** (expiries - 1), 30_000) <= delay <= 60_000
        assert delay >= min(before, 30_000)
        before = delay
