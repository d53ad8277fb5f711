"""Real graphs for the recovery benchmark: workflow traces, and runs damaged in the middle."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import zstandard

from dalsegno.streams.core.recovery.estimates import Estimates
from dalsegno.streams.core.recovery.forecast import Damaged

DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data" / "dags"
# What a task's name says beside its number.
_NUMBER = re.compile(r"[_\-]*(ID)?[0-9]{2,}.*$|[0-9]+$")


@dataclass(frozen=True)
class Workflow:
    """A graph with what its tasks took. `kinds[i]`: the type of task i, its name without number."""

    name: str
    took_ms: tuple[int, ...]
    needs: tuple[tuple[int, ...], ...]
    kinds: tuple[str, ...]

    @property
    def dependents(self) -> tuple[tuple[int, ...], ...]:
        """Tasks that wait for each task."""
        after: list[list[int]] = [[] for _ in self.needs]
        for task, needs in enumerate(self.needs):
            for need in needs:
                after[need].append(task)
        return tuple(map(tuple, after))

    @property
    def order(self) -> tuple[int, ...]:
        """Tasks, each after all that it needs."""
        dependents = self.dependents
        waits = [len(needs) for needs in self.needs]
        order = [task for task, count in enumerate(waits) if not count]
        for task in order:
            for dependent in dependents[task]:
                waits[dependent] -= 1
                if not waits[dependent]:
                    order.append(dependent)
        return tuple(order)


def read(name: str) -> list[Workflow]:
    """The workflows of one file of the data set."""
    with (DATA / name).open("rb") as file:
        text = zstandard.ZstdDecompressor().stream_reader(file).read().decode()
    return [_workflow(json.loads(line)) for line in text.splitlines() if line]


def _workflow(row: dict[str, object]) -> Workflow:
    tasks = row["tasks"]
    assert isinstance(tasks, list)
    place = {task["id"]: i for i, task in enumerate(tasks)}
    return Workflow(
        name=str(row["instance"]),
        took_ms=tuple(max(10, round(task["runtime_s"] * 1_000)) for task in tasks),
        needs=tuple(tuple(place[p] for p in task["parents"] if p in place) for task in tasks),
        kinds=tuple(_NUMBER.sub("", task["name"]) for task in tasks),
    )


def fork_join(width: int, deep: int, took_ms: int) -> Workflow:
    """`width` chains of `deep` tasks, each after nothing."""
    needs: list[tuple[int, ...]] = []
    for _ in range(width):
        for depth in range(deep):
            needs.append((len(needs) - 1,) if depth else ())
    count = width * deep
    return Workflow("chains", (took_ms,) * count, tuple(needs), ("task",) * count)


def learned(workflow: Workflow, took_ms: Sequence[int] | None = None) -> tuple[int, ...]:
    """What the service would estimate: decayed medians by type, after one run of the workflow."""
    estimates = Estimates()
    for kind, took in zip(workflow.kinds, took_ms or workflow.took_ms, strict=True):
        estimates.observe(workflow.name, kind, took)
    return tuple(estimates.learned_ms(workflow.name, kind) or 1 for kind in workflow.kinds)


def damaged(
    workflow: Workflow,
    run_id: str,
    *,
    done: float = 0.0,
    since_ms: int = 0,
    usual_ms: tuple[int, ...] = (),
) -> Damaged:
    """A run of the workflow of which the first part (0 to 1) is done, in an order that could be."""
    order = workflow.order
    finished = [False] * len(order)
    for task in order[: int(done * len(order))]:
        finished[task] = True
    return Damaged(
        run_id=run_id,
        since_ms=since_ms,
        order=order,
        needs=workflow.needs,
        dependents=workflow.dependents,
        usual_ms=usual_ms or learned(workflow),
        finished=finished,
        took_ms=workflow.took_ms,
    )


def mass_failure(
    rng: random.Random, large: Sequence[Workflow], small: Sequence[Workflow], runs: int = 100
) -> list[Damaged]:
    """`runs` damaged at once: 15 % of them large workflows, a random part of each done."""
    return [
        damaged(
            rng.choice(large) if rng.random() < 0.15 else rng.choice(small),
            f"run-{number:05d}",
            done=rng.random() * 0.9,
        )
        for number in range(runs)
    ]
