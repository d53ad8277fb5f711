"""Slow dependencies in many small worlds, and the deliberate bugs that these find."""

from collections.abc import Callable

import pytest
from tests.simulation.promises import BrokenPromiseError
from tests.simulation.slow_mutants import MUTANTS
from tests.simulation.slow_world import SlowWorld

SEEDS = 20
TEETH_SEEDS = 40


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_is_slow_is_limited_and_nothing_else_is(seed: int) -> None:
    SlowWorld(seed).run()


def test_most_worlds_limit_something() -> None:
    assert sum(bool(SlowWorld(seed).run().limited_ms) for seed in range(10)) >= 8


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_deliberate_bug_in_noticing_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    for seed in range(TEETH_SEEDS):
        try:
            SlowWorld(seed).run()
        except (BrokenPromiseError, AssertionError):
            return
    raise AssertionError("not found")
