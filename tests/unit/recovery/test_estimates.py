"""Medians of durations: right to a class, decayed, bounded, the same after a restore."""

from __future__ import annotations

from random import Random
from statistics import median_low

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dalsegno.schemas.plan import StepPlan
from dalsegno.streams.core.recovery.estimates import (
    CLASSES,
    HALVE_ABOVE,
    SETTLED,
    TYPES_MAX,
    Durations,
    Estimates,
    class_of,
    middle_ms,
)


@given(st.integers(0, 1 << 40))
def test_a_class_is_right_to_one_part_in_eight(took_ms: int) -> None:
    number = class_of(took_ms)
    assert 0 <= number < CLASSES
    if took_ms < 1 << 34:
        assert abs(middle_ms(number) - took_ms) * 8 <= took_ms
    assert class_of(middle_ms(number)) == number


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_classes_are_in_the_order_of_durations(a: int, b: int) -> None:
    assert (class_of(min(a, b))) <= class_of(max(a, b))


@given(st.lists(st.integers(1, 10**7), min_size=1, max_size=HALVE_ABOVE))
def test_the_median_is_the_lower_median_to_one_part_in_eight(took_ms: list[int]) -> None:
    durations = Durations()
    for each in took_ms:
        durations.add(each)
    wanted = median_low(took_ms)
    assert abs(durations.median_ms - wanted) * 8 <= wanted


def test_what_steps_took_lately_decides() -> None:
    durations = Durations()
    for _ in range(1_000):
        durations.add(100)
    for _ in range(HALVE_ABOVE):
        durations.add(5_000)
    assert durations.median_ms > 4_000


def test_a_type_takes_constant_memory_whatever_it_sees() -> None:
    rng = Random(1)
    durations = Durations()
    for _ in range(20_000):
        durations.add(int(rng.lognormvariate(8, 4)))
    assert len(durations.pack()) <= 4 * CLASSES


def test_a_partition_forgets_the_type_that_completed_longest_ago() -> None:
    estimates = Estimates()
    for number in range(TYPES_MAX):
        estimates.observe("flow", f"step-{number}", 5)
    estimates.observe("flow", "step-0", 5)
    estimates.take_dirty()
    estimates.observe("flow", "new", 7)
    assert dict(estimates.take_dirty()).keys() == {"flow/step-1", "flow/new"}
    assert len(estimates.packed()) == TYPES_MAX
    assert estimates.learned_ms("flow", "step-1") is None
    assert estimates.learned_ms("flow", "step-0") == 5
    assert estimates.learned_ms("flow", "new") == 7


@given(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 9), st.booleans()), max_size=60)
)
def test_a_restored_partition_forgets_the_same_type(
    steps: list[tuple[str, int, bool]],
) -> None:
    saved: dict[str, bytes] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{Estimates.__module__}.TYPES_MAX", 4)
        estimates, again = Estimates(), Estimates()
        for name, took_ms, restored in steps:
            estimates.observe("flow", name, took_ms)
            again.observe("flow", name, took_ms)
            if restored:
                for key, data in again.take_dirty():
                    if data is None:
                        saved.pop(key, None)
                    else:
                        saved[key] = data
                again = Estimates()
                again.load(saved.items())
            assert again.packed() == estimates.packed()


def test_a_median_of_few_attempts_is_not_settled() -> None:
    estimates = Estimates()
    for number in range(SETTLED):
        assert estimates.settled_ms("flow", "a") == 0, number
        estimates.observe("flow", "a", 100)
    assert estimates.settled_ms("flow", "a") == estimates.learned_ms("flow", "a")


def test_a_type_that_never_completed_is_guessed_from_its_limit() -> None:
    estimates = Estimates()
    assert estimates.usual_ms("flow", StepPlan(name="a", timeout_ms=60_000)) == 6_000
    estimates.observe("flow", "a", 11)
    assert estimates.of("flow", [StepPlan(name="a"), StepPlan(name="b", timeout_ms=3)]) == [11, 1]


def test_a_restored_partition_goes_on_learning_as_the_one_that_was_saved() -> None:
    rng = Random(2)
    estimates, again = Estimates(), Estimates()
    for _ in range(500):
        estimates.observe("flow", rng.choice("abc"), rng.randint(0, 10_000))
    assert [name for name, _ in estimates.take_dirty()] != []
    assert estimates.take_dirty() == []
    again.load(reversed(estimates.packed()))
    assert again.take_dirty() == []
    for _ in range(500):
        name, took = rng.choice("abcd"), rng.randint(0, 10_000)
        estimates.observe("flow", name, took)
        again.observe("flow", name, took)
    assert again.packed() == estimates.packed()
