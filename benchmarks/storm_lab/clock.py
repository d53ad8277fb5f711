"""Simulated time: calls in the order in which they are due."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Clock:
    """`at` queues a call, `run` makes them until nothing is left or `until_s` has come."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.calls = 0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []

    def now(self) -> float:
        """Seconds since the start."""
        return self.now_s

    def at(self, due_s: float, call: Callable[[], None]) -> None:
        """Make the call then."""
        self.calls += 1
        heapq.heappush(self._queue, (due_s, self.calls, call))

    def after(self, delay_s: float, call: Callable[[], None]) -> None:
        """Make the call after a while."""
        self.at(self.now_s + delay_s, call)

    def run(self, until_s: float, finished: Callable[[], bool]) -> None:
        """Until it is finished, or time is up."""
        while self._queue and not finished():
            due_s, _, call = heapq.heappop(self._queue)
            if due_s > until_s:
                return
            self.now_s = due_s
            call()
