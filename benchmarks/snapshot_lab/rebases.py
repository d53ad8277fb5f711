"""The rule for new bases beside the best choice in hindsight, on sizes of real trajectories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from benchmarks.snapshot_lab import trajectories
from rich.console import Console
from rich.table import Table

from dalsegno.schemas.control import Policy
from dalsegno.storage.frame import store
from dalsegno.storage.snapshots.rebase import Rent, base_due, pay
from dalsegno.streams.core.context import Context

WEIGHTS: Final = (0.001, 0.01, 0.03, 0.1, 0.3, 1.0)
UNCAPPED_MAX: Final = 0.10
CAPPED_MAX: Final = 0.35
_RUNS: Final = 60
_POLICY: Final = Policy(context_bytes_max=64 << 20, inline_bytes_max=32 << 20)
_NEVER: Final = 1 << 30

Sizes = tuple[list[int], list[int]]


def sizes(name: str) -> list[Sizes]:
    """Of each run: bytes of a full snapshot, and of a delta, at every step."""
    found: list[Sizes] = []
    for number, (base, steps) in enumerate(trajectories.runs(name)):
        if number >= _RUNS:
            break
        context = Context.create(base, _POLICY)
        full, delta = [len(store(context.pack()).data)], [0]
        for operations in steps:
            context.apply(operations, _POLICY).adopt()
            full.append(len(store(context.pack()).data))
            delta.append(len(store(operations).data))
        if len(full) > 2:
            found.append((full, delta))
    return found


def ruled(run: Sizes, weight: float, *, capped: bool) -> float:
    """Written and, weighted, restored bytes under our rule."""
    caps = {} if capped else {"growth_max": float(_NEVER), "length_max": _NEVER}
    rent: Rent | None = None
    cost = 0.0
    for full, delta in zip(*run, strict=True):
        if rent is None or base_due(rent, delta, full, weight=weight, **caps):  # type: ignore[arg-type]
            rent = Rent(full)
            cost += full
        else:
            rent = pay(rent, delta, full, weight=weight)
            cost += delta
        cost += weight * (rent.base_bytes + rent.delta_bytes)
    return cost


def best(run: Sizes, weight: float) -> float:
    """The least cost of any choice of bases: by dynamic programming over where chains begin."""
    full, delta = run
    count = len(full)
    least = [0.0] + [float("inf")] * count
    for begin in range(count):
        chain = full[begin]
        cost = least[begin] + chain * (1 + weight)
        least[begin + 1] = min(least[begin + 1], cost)
        for end in range(begin + 1, count):
            chain += delta[end]
            cost += delta[end] + weight * chain
            least[end + 1] = min(least[end + 1], cost)
    return least[count]


def regret(runs: Sequence[Sizes], weight: float, *, capped: bool) -> float:
    """Cost over the least cost, minus 1, over all runs of a set."""
    ours = sum(ruled(run, weight, capped=capped) for run in runs)
    return ours / sum(best(run, weight) for run in runs) - 1


def report(console: Console) -> int:
    """Prints the worst set for each weight; how many bounds were missed."""
    table = Table(
        "weight", "uncapped", "set", "capped", "set", title="new bases: regret, worst set"
    )
    sets = {name: sizes(name) for name in trajectories.NAMES}
    worst = [0.0, 0.0]
    for weight in WEIGHTS:
        row = [str(weight)]
        for place, capped in enumerate((False, True)):
            found = {name: regret(runs, weight, capped=capped) for name, runs in sets.items()}
            name = max(found, key=lambda each: found[each])
            row += [f"{found[name]:+.1%}", name]
            worst[place] = max(worst[place], found[name])
        table.add_row(*row)
    console.print(table)
    return (worst[0] > UNCAPPED_MAX) + (worst[1] > CAPPED_MAX)
