"""Worlds of sagas keep their promises, and find each deliberate bug of theirs."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.simulation.mutants import Mutant
from tests.simulation.promises import BrokenPromiseError
from tests.simulation.saga_mutants import SAGA_MUTANTS
from tests.simulation.saga_world import SagaWorld
from tests.simulation.teeth import seeds_to_find

from dalsegno.schemas.outputs import RunState

SEEDS, CHUNK = 600, 100


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_worlds_of_sagas_keep_every_promise(first: int) -> None:
    ends: Counter[RunState | None] = Counter()
    for seed in range(first, first + CHUNK):
        world = SagaWorld(seed)
        try:
            world.run()
        except BrokenPromiseError as broken:
            lines = "\n".join(" ".join(map(str, line)) for line in world.tail)
            raise AssertionError(f"seed {seed}: {broken}\n{lines}") from broken
        for reference in world.checker.references:
            ends.update(story.state for story in reference.stories.values())
    assert ends[RunState.COMPENSATED] >= CHUNK // 5, f"too few sagas to tell: {ends}"
    assert ends[RunState.SUCCEEDED] >= CHUNK // 5


@pytest.mark.parametrize("seed", [2, 5])
def test_one_seed_is_one_schedule(seed: int) -> None:
    assert SagaWorld(seed).run() == SagaWorld(seed).run()


@pytest.mark.parametrize("mutant", SAGA_MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_a_deliberate_bug_is_found(mutant: Mutant) -> None:
    found = seeds_to_find(mutant, lambda seed: SagaWorld(seed).run())
    assert found is not None, f"not found in {mutant.seeds} seeds: {mutant.name}"


def test_there_are_enough_deliberate_bugs() -> None:
    assert len({mutant.name for mutant in SAGA_MUTANTS}) == len(SAGA_MUTANTS) >= 6
