"""Late, double, stale and forged decisions over many seeds, and bugs that the checks must find."""

from __future__ import annotations

import pytest
from tests.simulation.mutants import patching
from tests.simulation.people_mutants import BREAKS
from tests.simulation.people_world import PeopleWorld
from tests.simulation.teeth import seeds_to_find

from dalsegno.schemas.control import DecisionType

SEEDS = 400
SEEDS_TO_FIND = 300


def test_people_decide_late_doubly_and_wrongly_and_every_promise_holds() -> None:
    decided: set[str] = set()
    endings = 0
    for seed in range(SEEDS):
        world = PeopleWorld(seed)
        world.run()
        decided |= {event.decision for event in world.first.values()}
        endings += world.ended
    assert endings == SEEDS
    assert decided == set(DecisionType) - {DecisionType.COMPENSATE}, "each was taken at least once"


def test_one_seed_is_one_schedule() -> None:
    one, other = PeopleWorld(7), PeopleWorld(7)
    one.run()
    other.run()
    assert one.log.outputs == other.log.outputs
    assert one.log.partition.parts() == other.log.partition.parts()


@pytest.mark.parametrize("name", BREAKS)
def test_a_deliberate_bug_is_found(name: str) -> None:
    mutant = patching(BREAKS[name], SEEDS_TO_FIND)
    # Its log looks at every output, too.
    found = seeds_to_find(mutant, lambda seed: PeopleWorld(seed).run(), AssertionError)
    assert found is not None
