"""No check of the worlds is idle: what each is about comes up, over some hundred seeds."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.archive_world import ArchiveWorld
from tests.simulation.combined_world import CombinedWorld
from tests.simulation.invariants import Checker
from tests.simulation.people_world import PeopleWorld
from tests.simulation.reached import watched
from tests.simulation.recovery_world import RecoveryWorld
from tests.simulation.saga_world import SagaChecker, SagaWorld
from tests.simulation.slow_world import SlowWorld
from tests.simulation.storms import StormWorld
from tests.simulation.world import World

SEEDS: dict[Callable[[int], World | StormWorld | PeopleWorld | RecoveryWorld | ArchiveWorld], int]
SEEDS = {
    World: 100,
    SagaWorld: 100,
    CombinedWorld: 340,
    StormWorld: 40,
    SlowWorld: 4,
    RecoveryWorld: 15,
    PeopleWorld: 200,
    ArchiveWorld: 20,
}
TAKEN_BACK_AGAIN = 76
"""A large world in which an effect comes after its step was taken back. One in hundreds has that:
where the order of things changes, look for another seed.
"""


def test_what_each_check_is_about_comes_up() -> None:
    with watched() as seen:
        for world, seeds in SEEDS.items():
            for seed in range(seeds):
                world(seed).run()
        SagaWorld(TAKEN_BACK_AGAIN, large=True).run()
    assert len(seen) > 150
    assert [place for place, times in sorted(seen.items()) if not times] == []


def test_afterwards_every_function_is_what_it_was() -> None:
    before = Checker.on_output.__code__, SagaChecker.check_effects.__code__
    with watched():
        marked = Checker.on_output.__code__, SagaChecker.check_effects.__code__
    assert marked[0] is not before[0]
    assert marked[1] is not before[1]
    assert (Checker.on_output.__code__, SagaChecker.check_effects.__code__) == before
