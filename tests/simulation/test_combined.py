"""One world of all parts keeps every promise, comes to all its seams, and finds bugs at these."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.simulation.combined_world import CombinedWorld
from tests.simulation.runner import run_seed, run_world
from tests.simulation.seam_mutants import SEAM_MUTANTS, SeamMutant
from tests.simulation.seams import SEAMS
from tests.simulation.teeth import seeds_to_find

SMALL_SEEDS = 340
LARGE_SEEDS, LARGE_CHUNK = 8, 4
COMBINED = "combined"


def test_small_worlds_of_all_parts_keep_every_promise_and_come_to_every_seam() -> None:
    seen: Counter[str] = Counter()
    for seed in range(SMALL_SEEDS):
        world = CombinedWorld(seed)
        run_world(world)
        for reference in world.checker.references:
            seen.update(reference.seams.seen)
    assert [seam for seam in SEAMS if not seen[seam]] == []
    assert set(seen) <= set(SEAMS)


@pytest.mark.parametrize("first", range(0, LARGE_SEEDS, LARGE_CHUNK))
def test_large_worlds_of_all_parts_keep_every_promise(first: int) -> None:
    for seed in range(first, first + LARGE_CHUNK):
        run_seed(seed, world=COMBINED, large=True)


@pytest.mark.parametrize("seed", [2, 9])
def test_one_seed_is_one_schedule(seed: int) -> None:
    assert run_seed(seed, world=COMBINED) == run_seed(seed, world=COMBINED)


@pytest.mark.parametrize("mutant", SEAM_MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_a_deliberate_bug_at_a_seam_is_found(mutant: SeamMutant) -> None:
    found = seeds_to_find(mutant, lambda seed: CombinedWorld(seed, mood=mutant.mood).run())
    assert found is not None, f"not found in {mutant.seeds} seeds: {mutant.name}"


def test_there_are_enough_deliberate_bugs() -> None:
    assert len({mutant.name for mutant in SEAM_MUTANTS}) == len(SEAM_MUTANTS) >= 15
