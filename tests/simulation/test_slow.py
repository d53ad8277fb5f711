"""Slow dependencies in many small worlds, and the deliberate bugs that these find."""

from collections.abc import Callable

import pytest
from tests.simulation.mutants import patching
from tests.simulation.slow_mutants import MUTANTS
from tests.simulation.slow_world import SlowWorld
from tests.simulation.teeth import seeds_to_find

SEEDS = 20
TEETH_SEEDS = 40


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_is_slow_is_limited_and_nothing_else_is(seed: int) -> None:
    SlowWorld(seed).run()


def test_most_worlds_limit_something() -> None:
    assert sum(bool(SlowWorld(seed).run().limited_ms) for seed in range(10)) >= 8


@pytest.mark.parametrize("break_it", MUTANTS, ids=lambda each: each.__name__)
def test_a_deliberate_bug_in_noticing_is_found(break_it: Callable[..., None]) -> None:
    mutant = patching(break_it, TEETH_SEEDS)
    assert seeds_to_find(mutant, lambda seed: SlowWorld(seed).run()) is not None
