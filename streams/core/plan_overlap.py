"""Unordered steps must not write one field, nor read what the other writes, without a merge rule.

Per field, the writers in topological order must form a chain: then only neighbours need a look. A
reader must come after the writer before it in that order, and before the one behind it; the chain
says the rest. So the number of questions "is a before b?" is linear in the declared fields, and
those that a direct need does not answer are answered together by one pass over the plan with bit
sets: bit k of a step's set says that the k-th step asked about comes before it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

from dalsegno.schemas.plan import Plan, StepPlan, StepRole
from dalsegno.streams.core.plan_errors import PlanRefused
from dalsegno.streams.core.plan_graph import Graph


class _Question(NamedTuple):
    """Is `before` an ancestor of `after`? Both are positions; `field` is why it matters."""

    before: int
    after: int
    field: str


def check_overlaps(plan: Plan, graph: Graph) -> None:
    """Raises `PlanRefused("overlapping_writes")` whose path holds the two steps."""
    direct = [frozenset(needs) for needs in graph.needs]
    questions = [q for q in _questions(plan, graph) if q.before not in direct[q.after]]
    if not questions:
        return
    # Bits only for the steps asked about keep the sets as short as the questions allow.
    rank = {before: bit for bit, before in enumerate(sorted({q.before for q in questions}))}
    ancestors = _ancestors(graph, rank)
    for question in questions:
        if not ancestors[question.after] >> rank[question.before] & 1:
            refuse_overlap(plan.steps[question.before], plan.steps[question.after], question.field)


def _questions(plan: Plan, graph: Graph) -> Iterator[_Question]:
    writers: dict[str, list[int]] = {}
    readers: dict[str, list[int]] = {}
    merged = {merge.field for merge in plan.merges}
    # Compensations run in an order of their own and may write what they undo.
    for place, i in enumerate(graph.order):
        step = plan.steps[i]
        assert step.role is StepRole.FORWARD
        for field in dict.fromkeys((*step.writes, *step.may_write)):
            if field not in merged:
                writers.setdefault(field, []).append(place)
        for field in step.reads:
            if field not in merged:
                readers.setdefault(field, []).append(place)
    order = graph.order
    for field, places in writers.items():
        for left, right in pairwise(places):
            yield _Question(order[left], order[right], field)
        for reader in readers.get(field, ()):
            at = bisect_left(places, reader)
            if at < len(places) and places[at] == reader:
                continue  # It writes the field as well: its place in the chain is known.
            if at > 0:
                yield _Question(order[places[at - 1]], order[reader], field)
            if at < len(places):
                yield _Question(order[reader], order[places[at]], field)


def _ancestors(graph: Graph, rank: Mapping[int, int]) -> list[int]:
    """For each position the set of ranked steps before it: bit `rank[i]` stands for step i."""
    sets = [0] * len(graph.needs)
    for i in graph.order:
        mine = 0
        for need in graph.needs[i]:
            mine |= sets[need]
            if need in rank:
                mine |= 1 << rank[need]
        sets[i] = mine
    return sets


def refuse_overlap(first: StepPlan, second: StepPlan, field: str) -> None:
    """Raises the `PlanRefused` of two steps that share a field."""

    def writes(name: str, fields: tuple[str, ...]) -> str:
        return f"{name!a} {'writes' if field in fields else 'reads'} it"

    told = ", ".join(writes(step.name, (*step.writes, *step.may_write)) for step in (first, second))
    raise PlanRefused(
        "overlapping_writes",
        (first.name, second.name),
        f"nothing orders two steps that share the field {field!a} ({told}): let one need the other,"
        " or give the field a merge rule",
    )
