"""The simulation has teeth: it finds each deliberate bug within a bounded number of seeds."""

from __future__ import annotations

import pytest
from tests.simulation.core_mutants import CORE_MUTANTS
from tests.simulation.mutants import MODEL_MUTANTS, Mutant
from tests.simulation.state_mutants import STATE_MUTANTS
from tests.simulation.teeth import seeds_to_find
from tests.simulation.world import World

MUTANTS = (*MODEL_MUTANTS, *CORE_MUTANTS, *STATE_MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_a_deliberate_bug_is_found(mutant: Mutant) -> None:
    found = seeds_to_find(mutant, lambda seed: World(seed).run())
    assert found is not None, f"not found in {mutant.seeds} seeds: {mutant.name}"


def test_there_are_enough_deliberate_bugs_and_each_has_its_name() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert len(MUTANTS) >= 25
