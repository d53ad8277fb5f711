"""What a recovery would do: list scheduling of damaged runs over a width, by the order in use.

The same order that dispatches (`order.py`), on a clock of its own. O(E + V log V).
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

import msgspec

from dalsegno.streams.core.recovery.order import Standing, WaitOrder
from dalsegno.streams.core.recovery.ranks import Left, what_is_left


class Damaged(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A run to be brought back. `order`, `needs`, `dependents` as in a plan's graph, by places.

    `usual_ms`: what its steps are estimated to take; the order goes by these. `took_ms`: what they
    really take, where that is known (a measurement), else empty. `since_ms`: when it was damaged.
    `ready_ms[i]`: step i may not go before this (it is backing off), 0 otherwise.
    """

    run_id: str
    since_ms: int
    order: Sequence[int]
    needs: Sequence[Sequence[int]]
    dependents: Sequence[Sequence[int]]
    usual_ms: Sequence[int]
    finished: Sequence[bool]
    took_ms: Sequence[int] = ()
    ready_ms: Sequence[int] = ()


class Planned(msgspec.Struct, frozen=True, gc=False):
    """One step of the forecast: when it begins and ends."""

    begin_ms: int
    end_ms: int
    run_id: str
    place: int


class Forecast(msgspec.Struct, frozen=True, gc=False):
    """Steps in the order in which they begin, and when each run is whole again."""

    steps: tuple[Planned, ...]
    whole_ms: dict[str, int]
    end_ms: int


class _Run:
    __slots__ = ("damaged", "left", "todo", "waits", "work_ms")

    def __init__(self, damaged: Damaged) -> None:
        self.damaged = damaged
        self.left: Left = what_is_left(
            damaged.order, damaged.dependents, damaged.usual_ms, damaged.finished
        )
        self.work_ms = self.left.work_ms
        finished = damaged.finished
        self.waits = [sum(not finished[n] for n in needs) for needs in damaged.needs]
        self.todo = sum(not finished[place] for place in damaged.order)

    @property
    def standing(self) -> Standing:
        return Standing(self.damaged.since_ms, self.work_ms, self.left.path_ms)


class _Simulation:
    """One forecast under way. `_events`: (time, run id, place, whether it ends a step)."""

    def __init__(self, runs: Sequence[Damaged], width: int, now_ms: int) -> None:
        self._now = now_ms
        self._free = width
        self._order = WaitOrder()
        self._events: list[tuple[int, str, int, bool]] = []
        self._runs = {damaged.run_id: _Run(damaged) for damaged in runs}
        self.steps: list[Planned] = []
        self.whole: dict[str, int] = {}
        for run_id, run in self._runs.items():
            begin = max(now_ms, run.damaged.since_ms)
            if not run.todo:
                self.whole[run_id] = begin
            for place in run.damaged.order:
                if not run.damaged.finished[place] and not run.waits[place]:
                    self._ready(run_id, run, place, begin)

    def _ready(self, run_id: str, run: _Run, place: int, at_ms: int) -> None:
        later = run.damaged.ready_ms[place] if run.damaged.ready_ms else 0
        if max(at_ms, later) > self._now:
            heappush(self._events, (max(at_ms, later), run_id, place, False))
        else:
            self._wait(run_id, run, place)

    def _wait(self, run_id: str, run: _Run, place: int) -> None:
        self._order.put(
            run_id,
            place,
            rank_ms=run.left.ranks[place],
            usual_ms=run.damaged.usual_ms[place],
            standing=run.standing,
        )

    def go(self) -> None:
        """Until nothing waits and nothing runs."""
        events = self._events
        while True:
            self._begin()
            if not events:
                return
            self._now = events[0][0]
            while events and events[0][0] == self._now:
                _, run_id, place, ends = heappop(events)
                run = self._runs[run_id]
                if ends:
                    self._end(run_id, run, place)
                else:
                    self._wait(run_id, run, place)

    def _begin(self) -> None:
        while self._free:
            found = self._order.take(self._now)
            if found is None:
                return
            run_id, place = found
            damaged = self._runs[run_id].damaged
            end = self._now + (damaged.took_ms or damaged.usual_ms)[place]
            self._free -= 1
            self.steps.append(Planned(self._now, end, run_id, place))
            heappush(self._events, (end, run_id, place, True))

    def _end(self, run_id: str, run: _Run, place: int) -> None:
        self._free += 1
        run.todo -= 1
        run.work_ms -= run.damaged.usual_ms[place]
        self._order.restand(run_id, run.standing)
        if not run.todo:
            self.whole[run_id] = self._now
        for dependent in run.damaged.dependents[place]:
            run.waits[dependent] -= 1
            if not run.waits[dependent] and not run.damaged.finished[dependent]:
                self._ready(run_id, run, dependent, self._now)


def forecast(runs: Sequence[Damaged], *, width: int, now_ms: int) -> Forecast:
    """Schedules the unfinished steps of `runs` over `width` places from `now_ms` on."""
    simulation = _Simulation(runs, max(1, width), now_ms)
    simulation.go()
    end = max(simulation.whole.values(), default=now_ms)
    return Forecast(tuple(simulation.steps), simulation.whole, end)
