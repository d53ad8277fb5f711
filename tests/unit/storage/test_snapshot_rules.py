"""When a snapshot pays, and when a new base does."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dalsegno.storage.snapshots.cadence import STEPS_MAX, STEPS_MIN, Cadence, Tick, interval
from dalsegno.storage.snapshots.learned import FACTORS, FREEZE_SAMPLES, LearnedCadence
from dalsegno.storage.snapshots.rebase import Rent, base_due, pay

POSITIVE = st.floats(1e-9, 1e9)


def tick(**fields: float) -> Tick:
    made = {"steps": 100, "failures": 0, "work": 1_000.0, "snapshots": 0, "snapshot_cost": 0.0}
    return Tick(**{**made, "redone": 0.0, **fields})  # type: ignore[arg-type]


def test_the_interval_is_youngs_within_its_bounds() -> None:
    assert interval(0.05, 1e-3, 10.0) == round(math.sqrt(2 * 0.05 / 1e-2))
    assert interval(1e9, 1e-9, 1.0) == STEPS_MAX
    assert interval(1e-9, 1.0, 1e6) == STEPS_MIN
    assert interval(0.05, 0.0, 10.0) == STEPS_MAX, "nothing fails, or nothing is lost by it"


@given(POSITIVE, POSITIVE, POSITIVE, POSITIVE)
def test_it_never_leaves_its_bounds_and_falls_as_failures_rise(
    cost: float, rate: float, work: float, more: float
) -> None:
    found = interval(cost, rate, work)
    assert STEPS_MIN <= found <= STEPS_MAX
    assert interval(cost, rate + more, work) <= found
    assert interval(cost + more, rate, work) >= found


def test_a_new_engine_expects_one_failure_in_a_thousand_steps() -> None:
    cadence = Cadence(cost=0.5, step_work=10.0)
    assert cadence.steps(0.1) == round(math.sqrt(2 * 0.5 / (1e-3 * 10)))
    assert cadence.failure_rate() == 1e-3


def test_failures_shorten_it_in_their_bucket_of_load_only() -> None:
    cadence = Cadence(cost=0.5, step_work=10.0)
    before = cadence.steps(0.9)
    for _ in range(60):
        every = cadence.steps(0.9)
        cadence.learn(tick(failures=5, redone=5 * 10 * (every + 1) / 2))
    assert cadence.steps(0.9) < before / 2
    assert cadence.steps(0.1) == before


def test_old_failures_fade() -> None:
    cadence = Cadence(cost=0.5, step_work=10.0)
    cadence.steps(0.1)
    cadence.learn(tick(failures=50, redone=0.0))
    bad = cadence.failure_rate()
    for _ in range(400):
        cadence.learn(tick())
    assert cadence.failure_rate() < bad / 20


def test_dear_snapshots_are_taken_less_often() -> None:
    cadence = Cadence(cost=0.01, step_work=10.0)
    before = cadence.steps(0.1)
    cadence.learn(tick(snapshots=10, snapshot_cost=10.0))
    assert cadence.steps(0.1) > before


def test_work_that_grows_faster_than_the_model_says_calibrates_it() -> None:
    cadence = Cadence(cost=0.5, step_work=10.0)
    before = cadence.steps(0.1)
    for _ in range(200):
        every = cadence.steps(0.1)
        cadence.learn(tick(failures=1, steps=1_000, work=10_000.0, redone=30 * (every + 1) / 2))
    assert 2 < cadence.calibration < 4
    assert cadence.steps(0.1) < before


def test_what_is_observed_never_breaks_it() -> None:
    random = Random(1)
    cadence = Cadence()
    for _ in range(2_000):
        assert STEPS_MIN <= cadence.steps(random.random() * 3 - 1) <= STEPS_MAX
        cadence.learn(
            tick(
                steps=random.choice((0, 1, 100)),
                failures=random.choice((0, 0, 1, 100)),
                work=random.choice((0.0, 1e-9, 1e9)),
                snapshots=random.choice((0, 1)),
                snapshot_cost=random.choice((0.0, 1e9)),
                redone=random.choice((0.0, 1e12)),
            )
        )
        assert 0.25 <= cadence.calibration <= 8


def test_with_few_samples_the_learned_factor_is_one() -> None:
    learned = LearnedCadence(Cadence(cost=0.5, step_work=10.0))
    for _ in range(FREEZE_SAMPLES * 10):
        assert learned.steps(0.1) == learned.closed_form.steps(0.1)
        assert learned.factor == 1.0
        learned.learn(tick(), 100.0)


def test_the_learned_factor_is_bounded_and_repeatable() -> None:
    def choices(seed: int) -> list[int]:
        random = Random(7)
        learned = LearnedCadence(Cadence(cost=0.5, step_work=10.0), seed)
        found = []
        for _ in range(3_000):
            every = learned.steps(random.random())
            assert learned.factor in FACTORS
            assert STEPS_MIN <= every <= STEPS_MAX
            learned.learn(
                tick(failures=int(random.random() < 0.1), snapshots=5, snapshot_cost=2.5), 900.0
            )
            found.append(every)
        return found

    assert choices(1) == choices(1)
    assert choices(1) != choices(2)


def test_it_learns_that_snapshots_cost_more_than_the_formula_thinks() -> None:
    """Unsaved work costs nothing here: the longest interval is best in every state."""
    learned = LearnedCadence(Cadence(cost=0.05, step_work=10.0), seed=3)
    late = 0
    for number in range(4_000):
        every = learned.steps(0.1)
        learned.learn(tick(snapshot_cost=50 / every), 0.0)
        late += number >= 2_000 and learned.factor == 2.0
    assert late > 1_400


def test_the_first_link_is_a_base() -> None:
    assert base_due(None, 10, 100)


def test_a_base_is_bought_when_the_rent_paid_is_its_price() -> None:
    rent = Rent(100)
    links = 1
    while not base_due(rent, 50, 100, weight=0.5, growth_max=1e9, length_max=10**9):
        rent = pay(rent, 50, 100, weight=0.5)
        links += 1
    # Excess of 50, 100, 150 ... at half price: 25 + 50 paid, and 75 more would be over 100.
    assert (links, rent.paid) == (3, 75.0)


@pytest.mark.parametrize(
    ("rent", "due"),
    [
        (Rent(100, delta_bytes=390, links=5), False),
        (Rent(100, delta_bytes=395, links=5), True),
        (Rent(100, delta_bytes=0, links=63), False),
        (Rent(100, delta_bytes=0, links=64), True),
    ],
)
def test_chains_are_bounded_whatever_the_rent(rent: Rent, due: bool) -> None:
    assert base_due(rent, 10, 1_000_000) is due


@given(st.lists(st.tuples(st.integers(1, 10_000), st.integers(1, 2_000)), min_size=1, max_size=200))
def test_no_chain_outgrows_its_bounds(sizes: list[tuple[int, int]]) -> None:
    rent: Rent | None = None
    for full, delta in sizes:
        new = rent is None or base_due(rent, delta, full)
        rent = Rent(full) if new or rent is None else pay(rent, delta, full)
        assert rent.links <= 64
        assert rent.delta_bytes <= 4 * rent.base_bytes
