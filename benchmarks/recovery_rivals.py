"""Other orders of recovery, to compare with: a plain list scheduler that looks at every run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from dalsegno.streams.core.recovery.forecast import Damaged
from dalsegno.streams.core.recovery.ranks import what_is_left


@dataclass
class Candidate:
    """A run with steps that may go. `ready`: heap of (-rank, place)."""

    number: int
    damaged: Damaged
    work_ms: int
    ranks: tuple[int, ...]
    waits: list[int]
    todo: int
    running: int = 0
    ready: list[tuple[int, int]] = field(default_factory=list)


Rule = Callable[[Candidate], tuple[int, int]]
RULES: dict[str, Rule] = {
    "first in, first out": lambda c: (c.number, 0),
    "global rank (HLFET)": lambda c: (c.ready[0][0], c.number),
    "fair share": lambda c: (c.running, c.number),
    "least work, none kept": lambda c: (c.work_ms, c.number),
}


def _candidate(number: int, damaged: Damaged) -> Candidate:
    left = what_is_left(damaged.order, damaged.dependents, damaged.usual_ms, damaged.finished)
    todo = [place for place in damaged.order if not damaged.finished[place]]
    waits = [sum(not damaged.finished[n] for n in needs) for needs in damaged.needs]
    run = Candidate(number, damaged, left.work_ms, left.ranks, waits, len(todo))
    for place in todo:
        if not waits[place]:
            heappush(run.ready, (-left.ranks[place], place))
    return run


def schedule(runs: Sequence[Damaged], rule: Rule, width: int) -> dict[str, int]:
    """When each run is whole again, all damaged at 0."""
    candidates = [_candidate(number, damaged) for number, damaged in enumerate(runs)]
    whole = {run.damaged.run_id: 0 for run in candidates if not run.todo}
    events: list[tuple[int, int, int]] = []
    now, free = 0, width
    while True:
        open_runs = [run for run in candidates if run.ready]
        while free and open_runs:
            run = min(open_runs, key=rule)
            place = heappop(run.ready)[1]
            run.running += 1
            free -= 1
            took_ms = (run.damaged.took_ms or run.damaged.usual_ms)[place]
            heappush(events, (now + took_ms, run.number, place))
            if not run.ready:
                open_runs.remove(run)
        if not events:
            return whole
        now = events[0][0]
        while events and events[0][0] == now:
            _, number, place = heappop(events)
            free += 1
            _end(candidates[number], place, now, whole)


def _end(run: Candidate, place: int, now: int, whole: dict[str, int]) -> None:
    run.running -= 1
    run.todo -= 1
    run.work_ms -= run.damaged.usual_ms[place]
    if not run.todo:
        whole[run.damaged.run_id] = now
    for dependent in run.damaged.dependents[place]:
        run.waits[dependent] -= 1
        if not run.waits[dependent] and not run.damaged.finished[dependent]:
            heappush(run.ready, (-run.ranks[dependent], dependent))
