"""Steps with several dependencies: all permits or none, and nobody waits for ever."""

import random
from collections import Counter

import pytest
from tests.unit.core.log import assert_restores
from tests.unit.core.point_log import PointLog

from dalsegno.schemas.outputs import Handoff

POINTS = ("mail", "pay", "scan")


class Demand:
    """Quotas as an actor would send them: at random, to points for which steps wait."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.log = PointLog()
        self.needs: dict[str, tuple[str, ...]] = {}
        self.went: list[str] = []
        self.granted: Counter[str] = Counter()
        for point in POINTS:
            self.log.state(point=point)
        for number in range(self.random.randint(1, 25)):
            names = tuple(self.random.sample(POINTS, self.random.randint(1, 3)))
            self.needs[f"r{number}"] = names
            assert self.log.runs(1, *names, first=number) == []

    def waiting(self, point: str) -> int:
        return self.log.partition._now.points.waiting(point)

    def took(self, given: list[Handoff]) -> None:
        self.went += [handoff.run_id for handoff in given]
        used = Counter(name for run_id in self.went for name in self.needs[run_id])
        assert all(used[point] <= self.granted[point] for point in POINTS)
        assert len(set(self.went)) == len(self.went)

    def round(self) -> None:
        self.log.now_ms += self.random.choice((0, 5, 400))
        asking = [point for point in POINTS if self.waiting(point)]
        point = self.random.choice(asking)
        permits = self.random.randint(1, 3)
        self.granted[point] += permits
        self.took(self.log.grant(permits, point))


@pytest.mark.parametrize("seed", range(80))
def test_each_takes_a_permit_of_all_or_none_and_every_step_goes_in_the_end(seed: int) -> None:
    demand = Demand(seed)
    for _ in range(400):
        if len(demand.went) == len(demand.needs):
            break
        assert any(demand.waiting(point) for point in POINTS), "held, and asked for by nobody"
        demand.round()
    assert sorted(demand.went) == sorted(demand.needs)
    assert_restores(demand.log)
