"""Fault points in many small worlds, and the deliberate bugs that these find."""

from collections.abc import Callable

import pytest
from tests.simulation.mutants import patching
from tests.simulation.storm_mutants import MUTANTS
from tests.simulation.storms import StormWorld
from tests.simulation.teeth import seeds_to_find

SEEDS = 60
TEETH_SEEDS = 120


@pytest.mark.parametrize("seed", range(SEEDS))
def test_small_worlds_keep_every_promise_of_the_fault_points(seed: int) -> None:
    StormWorld(seed).run()


@pytest.mark.parametrize("seed", range(5))
def test_in_a_peaceful_world_nobody_says_anything(seed: int) -> None:
    world = StormWorld(seed, faulty=False).run()
    assert world.reported == {}
    assert world.orders == 0


def test_one_seed_is_one_schedule() -> None:
    worlds = [StormWorld(3).run() for _ in range(2)]
    assert worlds[0].actors.digest() == worlds[1].actors.digest()
    assert worlds[0].time.now_ms == worlds[1].time.now_ms


@pytest.mark.parametrize("break_it", MUTANTS, ids=lambda each: each.__name__)
def test_a_deliberate_bug_in_fault_points_is_found(break_it: Callable[..., None]) -> None:
    mutant = patching(break_it, TEETH_SEEDS)
    assert seeds_to_find(mutant, lambda seed: StormWorld(seed).run()) is not None
