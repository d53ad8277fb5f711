"""Owners who archive over crashes and a store that misbehaves: nothing is ever nowhere."""

from __future__ import annotations

import pytest
from tests.simulation.archive_mutants import ARCHIVE_MUTANTS
from tests.simulation.archive_world import ArchiveWorld, worlds
from tests.simulation.cold_mutants import COLD_MUTANTS
from tests.simulation.mutants import Mutant
from tests.simulation.teeth import seeds_to_find

SEEDS, CHUNK = 60, 20


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_event_is_in_kafka_or_in_a_confirmed_segment_whatever_fails(first: int) -> None:
    found = list(worlds(range(first, first + CHUNK)))
    assert sum(world.died for world in found) > 2 * CHUNK
    assert sum(world.nested for world in found) > CHUNK
    assert sum(len(world.confirmed) for world in found) > 4 * CHUNK
    assert sum(world.left for world in found) > CHUNK / 2
    assert sum(world.back for world in found) > CHUNK / 2


@pytest.mark.parametrize(
    "mutant",
    [*ARCHIVE_MUTANTS, *COLD_MUTANTS],
    ids=lambda mutant: mutant.name.replace(" ", "-"),
)
def test_a_deliberate_bug_of_the_archive_is_found(mutant: Mutant) -> None:
    found = seeds_to_find(mutant, lambda seed: ArchiveWorld(seed).run())
    assert found is not None, f"not found in {mutant.seeds} seeds: {mutant.name}"
