"""What is left of a run: upward ranks, work, the critical path, and the bounds they set.

Works on a plan's graph by places; only unfinished forward steps count. Linear in steps and needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec


class Left(msgspec.Struct, frozen=True, gc=False):
    """What is left of a run, in milliseconds.

    `ranks[i]`: the upward rank u(i) = e(i) + max u(dependent), 0 for what is finished. `work_ms`:
    the sum of what is left. `path_ms`: the longest path through it.
    """

    ranks: tuple[int, ...]
    work_ms: int
    path_ms: int


def what_is_left(
    order: Sequence[int],
    dependents: Sequence[Sequence[int]],
    usual_ms: Sequence[int],
    finished: Sequence[bool],
) -> Left:
    """Ranks of the unfinished steps of `order` (each after all that it needs).

    `usual_ms[i]`, `finished[i]` are about step i. A finished step has rank 0 and costs nothing; its
    dependents have ranks of their own, as no path leads back through it.
    """
    ranks = [0] * len(dependents)
    work = 0
    for place in reversed(order):
        if finished[place]:
            continue
        behind = 0
        for dependent in dependents[place]:
            behind = max(behind, ranks[dependent])
        ranks[place] = usual_ms[place] + behind
        work += usual_ms[place]
    return Left(tuple(ranks), work, max(ranks, default=0))


def lower_bound_ms(work_ms: int, path_ms: int, width: int) -> int:
    """No schedule is done sooner: max(critical path, work / width), rounded up."""
    return max(path_ms, -(-work_ms // width))


def graham_bound_ms(work_ms: int, path_ms: int, width: int) -> int:
    """No schedule that leaves nothing idle while something may go is done later than
    W/P + (1 - 1/P)·CP, rounded up (Graham 1969).
    """
    return -(-(work_ms + (width - 1) * path_ms) // width)


def rank_of(place: int, dependents: Sequence[Sequence[int]], usual_ms: Callable[[int], int]) -> int:
    """The upward rank of one step: what stands behind it is walked, each step once."""
    ranks: dict[int, int] = {}
    stack = [place]
    while stack:
        at = stack[-1]
        if at in ranks:
            stack.pop()
            continue
        ahead = [dependent for dependent in dependents[at] if dependent not in ranks]
        if ahead:
            stack.extend(ahead)
            continue
        stack.pop()
        behind = max((ranks[dependent] for dependent in dependents[at]), default=0)
        ranks[at] = usual_ms(at) + behind
    return ranks[place]
