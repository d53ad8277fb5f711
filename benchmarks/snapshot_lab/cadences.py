"""Cadence of snapshots in a simulated fleet: the closed form, the learned factor, fixed ones.

A hundred runs take a step in each tick; a snapshot costs a fixed amount, a failure makes the steps
since the last one be done again. Costs are expectations, so that no luck is in them; what a
controller sees are sampled failures. `oracle` knows the rate of failures.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final, Protocol

import zstandard
from benchmarks.snapshot_lab.trajectories import FOLDER
from rich.console import Console
from rich.table import Table

from dalsegno.storage.snapshots.cadence import STEPS_MAX, STEPS_MIN, Cadence, Tick
from dalsegno.storage.snapshots.learned import LearnedCadence

RUNS: Final = 100
TICKS: Final = 1_500
SEEDS: Final = 2
COSTS: Final = (0.05, 0.5)
REGRET_MAX: Final = 0.10
_RESTORE_S: Final = 0.5
BLIND: Final = "bursts, blind"


class Controller(Protocol):
    """Says after how many steps a snapshot is taken."""

    def steps(self, tick: int, load: float, /) -> int: ...
    def learn(self, tick: Tick, unsaved: float, /) -> None: ...


@dataclass
class Fixed:
    every: int

    def steps(self, _tick: int, _load: float) -> int:
        return self.every

    def learn(self, _tick: Tick, _unsaved: float) -> None:
        """It learns nothing."""


@dataclass
class ClosedForm:
    cadence: Cadence

    def steps(self, _tick: int, load: float) -> int:
        return self.cadence.steps(load)

    def learn(self, tick: Tick, _unsaved: float) -> None:
        self.cadence.learn(tick)


@dataclass
class Learned:
    cadence: LearnedCadence

    def steps(self, _tick: int, load: float) -> int:
        return self.cadence.steps(load)

    def learn(self, tick: Tick, unsaved: float) -> None:
        self.cadence.learn(tick, unsaved)


@dataclass
class Oracle:
    """Knows the rate at each tick, and minimises what the next one costs."""

    world: World
    cost: float
    work: float

    def steps(self, tick: int, _load: float) -> int:
        rate, price = self.world.rate[tick], self.cost * self.world.price[tick]
        return min(
            range(STEPS_MIN, STEPS_MAX + 1),
            key=lambda k: price / k + rate * self.work * (k + 1) / 2,
        )

    def learn(self, _tick: Tick, _unsaved: float) -> None:
        """It knows."""


@dataclass
class World:
    """By tick: chance of a failure per step, load, price of a snapshot. `steep`: redone work
    grows faster than the steps, which the closed form does not know."""

    rate: list[float]
    load: list[float]
    price: list[float]
    steep: bool = False


def worlds(random: Random) -> dict[str, World]:
    """The scenarios, seeded."""
    bursts = _bursts(random)
    rate = [3e-2 if burst else 2e-4 for burst in bursts]
    load = [0.9 if burst else 0.1 for burst in bursts]
    plain, low = [1.0] * TICKS, [0.1] * TICKS
    dear = [10.0 if burst else 1.0 for burst in bursts]
    drift = [10 ** (-3 + 1.2 * math.sin(2 * math.pi * tick / 800)) for tick in range(TICKS)]
    return {
        "calm": World([1e-4] * TICKS, low, plain),
        "rough": World([1e-2] * TICKS, low, plain),
        "bursts": World(rate, load, plain),
        BLIND: World(rate, low, plain),
        "bursts, dear": World(rate, load, dear),
        "load alone": World([5e-4] * TICKS, load, dear),
        "drift": World(drift, low, plain),
        "steep": World([1e-3] * TICKS, low, plain, steep=True),
    }


def _bursts(random: Random) -> list[bool]:
    found = [False] * TICKS
    at = 0
    while at < TICKS:
        at += int(random.expovariate(1 / 250))
        length = int(random.expovariate(1 / 60)) + 10
        found[at : at + length] = [True] * len(found[at : at + length])
        at += length
    return found


def durations() -> list[float]:
    """Of real steps, in seconds; of a made-up spread where the data is absent."""
    path = FOLDER / "super_step_timings.csv.zst"
    if not path.exists():
        random = Random(1)
        return [random.lognormvariate(1.5, 1.3) for _ in range(5_000)]
    with path.open("rb") as file:
        text = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file))
        rows = csv.DictReader(text)
        return [max(0.5, float(row["end_s"]) - float(row["start_s"])) for row in rows]


def cost_of(
    controller: Controller, world: World, cost: float, spans: list[float], seed: int
) -> float:
    """Expected seconds lost per step: snapshots, and work done again."""
    random = Random(seed)
    since = [0] * RUNS
    unsaved = [0.0] * RUNS
    total = 0.0
    for tick in range(TICKS):
        load = min(1.0, max(0.0, world.load[tick] + random.gauss(0, 0.05)))
        every = controller.steps(tick, load)
        rate, price = world.rate[tick], cost * world.price[tick]
        work = at_risk = redone = 0.0
        failures = taken = 0
        for run in range(RUNS):
            span = random.choice(spans)
            work += span
            since[run] += 1
            unsaved[run] += span
            lost = unsaved[run] * (1 + since[run] / 2) if world.steep else unsaved[run]
            at_risk += lost
            if random.random() < rate:
                failures += 1
                redone += lost
            if since[run] >= every:
                taken += 1
                since[run], unsaved[run] = 0, 0.0
        total += rate * (at_risk + _RESTORE_S * RUNS) + price * taken
        controller.learn(
            Tick(
                steps=RUNS, failures=failures, work=work, snapshots=taken,
                snapshot_cost=price * taken, redone=redone,
            ),
            at_risk,
        )  # fmt: skip
    return total / (RUNS * TICKS)


def report(console: Console) -> int:
    """Prints cost over the oracle's; how often the closed form missed its bound."""
    spans = durations()
    work = sum(spans) / len(spans)
    makers: dict[str, Callable[[World, float, int], Controller]] = {
        "every 2": lambda *_: Fixed(2),
        "every 10": lambda *_: Fixed(10),
        "closed form": lambda _, cost, __: ClosedForm(Cadence(cost=cost, step_work=work)),
        "learned": lambda _, cost, seed: Learned(
            LearnedCadence(Cadence(cost=cost, step_work=work), seed)
        ),
        "oracle": lambda world, cost, _: Oracle(world, cost, work),
    }
    table = Table(
        "snapshot", "scenario", *list(makers)[:-1], title="cadence: cost over the oracle's"
    )
    missed = 0
    for cost in COSTS:
        for name in worlds(Random(0)):
            found = dict.fromkeys(makers, 0.0)
            for seed in range(SEEDS):
                world = worlds(Random(seed))[name]
                for maker, make in makers.items():
                    controller = make(world, cost, seed)
                    found[maker] += cost_of(controller, world, cost, spans, seed + 50)
            over = {maker: value / found["oracle"] - 1 for maker, value in found.items()}
            table.add_row(
                f"{cost} s", name, *(f"{over[maker]:+.0%}" for maker in list(makers)[:-1])
            )
            bound = name not in (BLIND, "steep")
            missed += bound and over["closed form"] > REGRET_MAX
    console.print(table)
    console.print("blind: the load does not tell; steep: the closed form's model is wrong, and the")
    console.print("oracle's too: below 0 is better than it")
    return missed
