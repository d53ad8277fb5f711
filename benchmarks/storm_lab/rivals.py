"""What fault points are compared with: each run for itself, and a breaker alone."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Final

from benchmarks.storm_lab.clock import Clock
from benchmarks.storm_lab.dependency import Dependency

_BASE_S: Final = 0.5
_CAP_S: Final = 60.0
_OPEN_FIRST_S: Final = 1.0
_OPEN_MAX_S: Final = 15.0
_FAILURES_TO_OPEN: Final = 5


class EachForItself:
    """Every run tries again by itself, after full jitter below an exponential ceiling."""

    def __init__(self, runs: int, returns_s: float, seed: int) -> None:
        self.clock = Clock()
        self.runs = runs
        self.done = 0
        self.attempts = 0
        self.random = random.Random(seed)
        self.dependency = Dependency(returns_s, seed, self.clock.now, self.clock.at)
        for _ in range(runs):
            self.clock.at(self.random.uniform(0, 0.5), self.ready(0))

    def ready(self, failures: int) -> Callable[[], None]:
        """A run may try, after so many failures."""
        return lambda: self.call(failures)

    def call(self, failures: int) -> None:
        """A run tries."""
        self.attempts += 1

        def heard(*, good: bool, span_s: float) -> None:
            self.ended(failures, good=good, span_s=span_s)

        self.dependency.call(heard)

    def ended(self, failures: int, *, good: bool, span_s: float) -> None:
        """It has heard; how long it took is nothing to it."""
        del span_s
        if good:
            self.done += 1
            return
        ceiling_s = min(_CAP_S, _BASE_S * 2 ** min(failures, 20))
        self.clock.after(self.random.uniform(0, ceiling_s), self.ready(failures + 1))


class BreakerAlone(EachForItself):
    """The same behind one circuit breaker: when its probe succeeds, everybody goes."""

    def __init__(self, runs: int, returns_s: float, seed: int) -> None:
        self._open = False
        self._probing = False
        self._in_a_row = 0
        self._pause_s = _OPEN_FIRST_S
        self._queue: deque[int] = deque()
        super().__init__(runs, returns_s, seed)

    def call(self, failures: int) -> None:
        """Waits while the breaker is open."""
        if self._open:
            self._queue.append(failures)
        else:
            super().call(failures)

    def _half_open(self) -> None:
        if self._queue:
            self._probing = True
            super().call(self._queue.popleft())
        else:
            self.clock.after(_OPEN_FIRST_S, self._half_open)

    def ended(self, failures: int, *, good: bool, span_s: float) -> None:
        """Opens and closes by what is heard."""
        super().ended(failures, good=good, span_s=span_s)
        self._in_a_row = 0 if good else self._in_a_row + 1
        if self._probing:
            self._probing = False
            self._pause_s = _OPEN_FIRST_S if good else min(_OPEN_MAX_S, 2 * self._pause_s)
            if good:
                self._open = False
                waiting, self._queue = self._queue, deque()
                for each in waiting:
                    self.call(each)
                return
        elif self._open or self._in_a_row < _FAILURES_TO_OPEN:
            return
        self._open = True
        self.clock.after(self._pause_s * self.random.uniform(0.8, 1.2), self._half_open)
