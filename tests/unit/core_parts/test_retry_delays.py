"""Delays and budgets: FAULTS R026, R103, R157."""

import random

import pytest

from dalsegno.schemas.control import Policy
from dalsegno.schemas.plan import RetryPolicy
from dalsegno.streams.core.retry import Budget, ceiling_ms, delay_ms, redispatch_ms

POLICY = Policy()
WHO = {"run_id": "r1", "step": "charge", "epoch": 3}


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


def test_a_different_error_does_not_start_the_growth_again():
    """R026: ten times overloaded, once unavailable, overloaded again."""
    budget = Budget()
    retry = RetryPolicy(max_attempts=99, max_infra_attempts=99)
    low = 0
    for infra in [*[True] * 10, False, True]:
        budget = budget.failed(infra=infra)
        delay = budget.next_delay_ms(retry, POLICY, **WHO)
        assert delay is not None
        assert delay >= low
        low = max(low, min(delay, 30_000))
    assert low == 30_000


def test_budgets_are_separate():
    """R103: one attempt by the step's own word; a lost worker does not use it up."""
    retry = RetryPolicy(max_attempts=1, max_infra_attempts=2)
    lost = Budget().failed(infra=True)
    assert lost.next_delay_ms(retry, POLICY, **WHO) is not None
    assert lost.failed(infra=False).next_delay_ms(retry, POLICY, **WHO) is None
    assert lost.failed(infra=True).next_delay_ms(retry, POLICY, **WHO) is None
    assert Budget().failed(infra=False).next_delay_ms(retry, POLICY, **WHO) is None
    three = RetryPolicy(max_attempts=3)
    twice = Budget().failed(infra=False).failed(infra=False)
    assert twice.next_delay_ms(three, POLICY, **WHO) is not None
    assert twice.failed(infra=False).next_delay_ms(three, POLICY, **WHO) is None


def test_retry_after_lengthens_within_its_bound_and_never_shortens():
    retry = RetryPolicy()
    budget = Budget().failed(infra=True)
    plain = budget.next_delay_ms(retry, POLICY, **WHO)
    asked = {
        after: budget.next_delay_ms(retry, POLICY, retry_after_ms=after, **WHO)
        for after in (-5, 0, 1, 30_000, 10**15)
    }
    assert asked == {-5: plain, 0: plain, 1: plain, 30_000: 30_000, 10**15: 3_600_000}


def test_redispatches_come_at_growing_intervals():
    before = 0
    for expiries in range(1, 30):
        delay = redispatch_ms(POLICY, "r", "s", random.Random(expiries).randrange(99), expiries)
        assert min(500 * 2 ** (expiries - 1), 30_000) <= delay <= 60_000
        assert delay >= min(before, 30_000)
        before = delay
