"""A service that was down and comes back: processor sharing, with a capacity that ramps up.

Down until `returns_s`: half of the requests are refused at once, the others hang until their caller
gives up. Then `CAPACITY_PER_S` requests a second, from 20 % of it over `RAMP_S`. Too many at once
make it slower as a whole, and a request whose caller has given up goes on using it.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

CAPACITY_PER_S: Final = 200.0
SERVICE_S: Final = 0.05
TIMEOUT_S: Final = 2.0
RAMP_S: Final = 30.0
AT_ONCE_MAX: Final = 5_000
_REFUSES_IN_S: Final = 0.005
_FIRST_SHARE: Final = 0.2


class Done(Protocol):
    """What a caller hears: whether it went well, and after how many seconds."""

    def __call__(self, *, good: bool, span_s: float) -> None: ...


def ideal_s(runs: int) -> float:
    """Seconds from the return until all are served, if the capacity were used to the last."""
    left, now = float(runs), 0.0
    step = 0.01
    while left > 0:
        share = min(1.0, _FIRST_SHARE + (1 - _FIRST_SHARE) * now / RAMP_S)
        left -= CAPACITY_PER_S * share * step
        now += step
    return now


class Request:
    """One call. `over`: its caller has heard, or has given up."""

    __slots__ = ("done", "over", "since_s")

    def __init__(self, since_s: float, done: Done) -> None:
        self.since_s = since_s
        self.done = done
        self.over = False


class Dependency:
    """The service. `call` is what workers do; time is the world's (`now`, `at`)."""

    def __init__(
        self,
        returns_s: float,
        seed: int,
        now: Callable[[], float],
        at: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self._returns_s = returns_s
        self._random = random.Random(seed)
        self._now = now
        self._at = at
        self._served: list[tuple[float, int, Request]] = []
        self._order = 0
        self._work = 0.0
        self._moved_s = 0.0
        self._alarms = 0
        self.arrivals = 0
        self.failed_after = 0
        self.first_success_s: float | None = None
        self.peak = 0.0
        self._last_second: deque[float] = deque()
        at(returns_s, self._ramping)

    def capacity(self, now_s: float) -> float:
        """Requests a second that it can serve."""
        if now_s < self._returns_s:
            return 0.0
        share = min(1.0, _FIRST_SHARE + (1 - _FIRST_SHARE) * (now_s - self._returns_s) / RAMP_S)
        return CAPACITY_PER_S * share

    def call(self, done: Done) -> None:
        """A request arrives."""
        now_s = self._now()
        self.arrivals += 1
        request = Request(now_s, done)
        if now_s < self._returns_s:
            refused = self._random.random() < 0.5
            self._fail_in(request, SERVICE_S if refused else TIMEOUT_S)
            return
        self._count(now_s)
        if len(self._served) >= AT_ONCE_MAX:
            self._fail_in(request, _REFUSES_IN_S)
            return
        self._progress()
        needs = 0.5 + 0.5 * self._random.expovariate(1)
        self._order += 1
        heapq.heappush(self._served, (self._work + needs, self._order, request))
        self._fail_in(request, TIMEOUT_S)
        self._set_alarm()

    def _count(self, now_s: float) -> None:
        recent = self._last_second
        recent.append(now_s)
        while recent[0] < now_s - 1:
            recent.popleft()
        self.peak = max(self.peak, len(recent) / max(1.0, self.capacity(now_s)))

    def _fail_in(self, request: Request, delay_s: float) -> None:
        def fail() -> None:
            if not request.over:
                request.over = True
                now_s = self._now()
                if request.since_s >= self._returns_s:
                    self.failed_after += 1
                request.done(good=False, span_s=now_s - request.since_s)

        self._at(self._now() + delay_s, fail)

    def _speed(self) -> float:
        """Work done a second for each request in service."""
        count, capacity = len(self._served), self.capacity(self._now())
        if not count or not capacity:
            return 0.0
        full = max(1.0, capacity * SERVICE_S)
        total = capacity * min(1.0, count / full) / (1 + max(0.0, count - full) / (20 * full))
        return total / count

    def _progress(self) -> None:
        now_s = self._now()
        self._work += self._speed() * (now_s - self._moved_s)
        self._moved_s = now_s

    def _ramping(self) -> None:
        """The capacity has changed: so has the time at which the next one is through."""
        self._progress()
        self._set_alarm()
        if self._now() < self._returns_s + RAMP_S:
            self._at(self._now() + 0.1, self._ramping)

    def _set_alarm(self) -> None:
        speed = self._speed()
        if not self._served or not speed:
            return
        due_s = self._now() + max(0.0, self._served[0][0] - self._work) / speed
        self._alarms += 1
        number = self._alarms
        self._at(due_s, lambda: self._alarm(number))

    def _alarm(self, number: int) -> None:
        if number != self._alarms:
            return  # something has changed since it was set
        self._progress()
        _, _, request = heapq.heappop(self._served)
        if not request.over:
            request.over = True
            now_s = self._now()
            if self.first_success_s is None:
                self.first_success_s = now_s
            request.done(good=True, span_s=now_s - request.since_s)
        self._set_alarm()
