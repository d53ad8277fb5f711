"""Mass failures, freezes and releases: every promise holds, and deliberate bugs are found."""

from __future__ import annotations

import pytest
from tests.simulation.mutants import Mutant
from tests.simulation.recovery_mutants import RECOVERY_MUTANTS
from tests.simulation.recovery_world import RecoveryWorld
from tests.simulation.teeth import seeds_to_find


@pytest.mark.parametrize("seed", range(12))
def test_mass_failures_keep_every_promise(seed: int) -> None:
    RecoveryWorld(seed).run()


def test_one_seed_is_one_story() -> None:
    assert RecoveryWorld(3).run() == RecoveryWorld(3).run()


@pytest.mark.parametrize("mutant", RECOVERY_MUTANTS, ids=lambda mutant: mutant.name)
def test_a_deliberate_bug_of_recovery_is_found(mutant: Mutant) -> None:
    found = seeds_to_find(mutant, lambda seed: RecoveryWorld(seed).run())
    assert found is not None, f"not found in {mutant.seeds} seeds: {mutant.name}"
