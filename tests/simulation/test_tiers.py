"""Local databases under simulated engines: neither they nor their loss change anything."""

from __future__ import annotations

import pytest
from tests.simulation.mutants import Mutant
from tests.simulation.runner import run_seed
from tests.simulation.story import BrokenPromiseError
from tests.simulation.tier_mutants import TIER_MUTANTS
from tests.simulation.tiers import TieredWorld

SAME, LOSSY, CHUNK = 120, 120, 40


@pytest.mark.parametrize("first", range(0, SAME, CHUNK))
def test_a_world_with_databases_runs_the_schedule_of_the_one_without(first: int) -> None:
    left = loaded = kept = wiped = 0
    for seed in range(first, first + CHUNK):
        world = TieredWorld(seed)
        assert world.run() == run_seed(seed), f"seed {seed}: another schedule"
        disks = world.disks
        left, loaded = left + disks.left, loaded + disks.loaded
        kept, wiped = kept + disks.kept, wiped + disks.wiped
    assert min(left, loaded, wiped) > CHUNK
    assert kept > CHUNK / 4


@pytest.mark.parametrize("first", range(0, LOSSY, CHUNK))
def test_databases_that_are_lost_under_running_engines_break_no_promise(first: int) -> None:
    for seed in range(first, first + CHUNK):
        TieredWorld(seed, breaks=20).run()


def test_a_large_world_with_databases_is_the_same() -> None:
    assert TieredWorld(3, large=True).run() == run_seed(3, large=True)


def finds(mutant: Mutant, seed: int, right: str) -> bool:
    """Whether a promise is broken, or the schedule is another one than without databases."""
    with mutant.bug():
        try:
            return TieredWorld(seed).run() != right
        except (BrokenPromiseError, AssertionError, KeyError):
            return True


@pytest.mark.parametrize("mutant", TIER_MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_a_deliberate_bug_of_the_tiers_is_found(mutant: Mutant) -> None:
    for seed in range(mutant.seeds):
        right = run_seed(seed)
        if finds(mutant, seed, right):
            assert TieredWorld(seed).run() == right, "else it is not the bug that was found"
            return
    raise AssertionError(f"not found in {mutant.seeds} seeds: {mutant.name}")
