"""Random graphs and damaged runs for the tests of recovery."""

from __future__ import annotations

from random import Random

from dalsegno.streams.core.recovery.forecast import Damaged


def graph(rng: Random, steps: int, *, needs_max: int = 3) -> list[tuple[int, ...]]:
    """Needs of each step: places before its own, so places are an order of the graph."""
    return [
        tuple(sorted(rng.sample(range(place), min(place, rng.randint(0, needs_max)))))
        for place in range(steps)
    ]


def dependents_of(needs: list[tuple[int, ...]]) -> list[list[int]]:
    """Steps that wait for each step."""
    after: list[list[int]] = [[] for _ in needs]
    for place, before in enumerate(needs):
        for need in before:
            after[need].append(place)
    return after


def damaged_run(rng: Random, run_id: str, steps: int, *, needs_max: int = 3) -> Damaged:
    """A run of random needs and times; a first part of it is done."""
    needs = graph(rng, steps, needs_max=needs_max)
    done = rng.randrange(steps)
    return Damaged(
        run_id=run_id,
        since_ms=0,
        order=range(steps),
        needs=needs,
        dependents=dependents_of(needs),
        usual_ms=[rng.randint(100, 60_000) for _ in range(steps)],
        finished=[place < done for place in range(steps)],
    )
