"""The graph of a plan: order, dependents, longest path, cycles. Nothing here recurses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from dalsegno.schemas.plan import StepPlan, StepRole
from dalsegno.streams.core.plan_errors import PlanRefused


class Graph(msgspec.Struct, frozen=True, eq=False):
    """Needs between steps by position; see `CompiledPlan` for the fields.

    `finish_ms[i]`: the largest sum of timeouts of a path of needs that ends with step i.
    """

    needs: tuple[tuple[int, ...], ...]
    dependents: tuple[tuple[int, ...], ...]
    needs_count: tuple[int, ...]
    order: tuple[int, ...]
    roots: tuple[int, ...]
    finish_ms: tuple[int, ...]
    longest_path_ms: int

    def longest_path(self, steps: Sequence[StepPlan]) -> tuple[str, ...]:
        """Names along the path whose timeouts add up to `longest_path_ms`, in order."""
        at = self.finish_ms.index(self.longest_path_ms)
        path = [at]
        while self.needs[at]:
            at = max(self.needs[at], key=self.finish_ms.__getitem__)
            path.append(at)
        return tuple(steps[i].name for i in reversed(path))


def build_graph(steps: Sequence[StepPlan]) -> Graph:
    """Orders the steps (Kahn's algorithm). Raises `PlanRefused("cycle")` with the names along it.

    Every need must name a step of `steps`. A need that is named twice counts once. Compensations
    stand outside the order: nothing waits for them.
    """
    index = {step.name: i for i, step in enumerate(steps)}
    needs = tuple(tuple(dict.fromkeys(index[n] for n in step.needs)) for step in steps)
    dependents: list[list[int]] = [[] for _ in steps]
    for i, before in enumerate(needs):
        for need in before:
            dependents[need].append(i)
    waiting = [len(before) for before in needs]
    roots = tuple(
        i for i, step in enumerate(steps) if not needs[i] and step.role is StepRole.FORWARD
    )
    order = list(roots)
    finish = [step.timeout_ms for step in steps]
    # `order` grows while it is walked: it is the queue of the algorithm as well as its result.
    for i in order:
        done = finish[i]
        for dependent in dependents[i]:
            finish[dependent] = max(finish[dependent], done + steps[dependent].timeout_ms)
            waiting[dependent] -= 1
            if waiting[dependent] == 0:
                order.append(dependent)
    if any(waiting):
        _refuse_cycle(steps, needs, waiting)
    return Graph(
        needs=needs,
        dependents=tuple(tuple(after) for after in dependents),
        needs_count=tuple(len(before) for before in needs),
        order=tuple(order),
        roots=roots,
        finish_ms=tuple(finish),
        longest_path_ms=max((finish[i] for i in order), default=0),
    )


def extend_graph(
    graph: Graph, index: Mapping[str, int], steps: Sequence[StepPlan]
) -> tuple[Graph, tuple[int, ...]]:
    """The graph with `steps` behind its own, and the places of the new forward steps in order.

    `index`: places by name, those of the new steps included. What was there is copied, not looked
    at: nothing in it can need a new step. Raises `PlanRefused("cycle")`.
    """
    first = len(graph.needs)
    needs = [tuple(dict.fromkeys(index[n] for n in step.needs)) for step in steps]
    dependents = [*graph.dependents, *[()] * len(steps)]
    for place, before in enumerate(needs, first):
        for need in before:
            dependents[need] += (place,)
    waiting = [sum(need >= first for need in before) for before in needs]
    finish = [*graph.finish_ms, *(step.timeout_ms for step in steps)]
    order = [
        place
        for place, step in enumerate(steps, first)
        if not waiting[place - first] and step.role is StepRole.FORWARD
    ]
    for place in order:
        started = max((finish[need] for need in needs[place - first]), default=0)
        finish[place] = started + steps[place - first].timeout_ms
        for dependent in dependents[place]:
            waiting[dependent - first] -= 1
            if waiting[dependent - first] == 0:
                order.append(dependent)
    if any(waiting):
        local = [[need - first for need in before if need >= first] for before in needs]
        _refuse_cycle(steps, local, waiting)
    roots = [p for p in order if not needs[p - first]]
    longer = Graph(
        needs=(*graph.needs, *needs),
        dependents=tuple(dependents),
        needs_count=(*graph.needs_count, *map(len, needs)),
        order=(*graph.order, *order),
        roots=(*graph.roots, *roots),
        finish_ms=tuple(finish),
        longest_path_ms=max(graph.longest_path_ms, *(finish[p] for p in order), 0),
    )
    return longer, tuple(order)


def _refuse_cycle(
    steps: Sequence[StepPlan], needs: Sequence[Sequence[int]], waiting: Sequence[int]
) -> None:
    path = tuple(steps[i].name for i in _cycle(needs, waiting))
    raise PlanRefused("cycle", path, "steps wait for each other: " + " > ".join(path[:12]))


def _cycle(needs: Sequence[Sequence[int]], waiting: Sequence[int]) -> list[int]:
    """One cycle among the steps that still wait: each of them needs another one that waits."""
    at = next(i for i, count in enumerate(waiting) if count)
    seen: dict[int, int] = {}
    path: list[int] = []
    while at not in seen:
        seen[at] = len(path)
        path.append(at)
        at = next(need for need in needs[at] if waiting[need])
    cycle = [*path[seen[at] :], at]
    # Walked from a step to what it needs; told in the order in which the steps would run.
    cycle.reverse()
    return cycle
