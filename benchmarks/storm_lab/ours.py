"""Our own fault points in the simulated world: the actor's fold, and the partitions' side of it.

Between them is a log: what one writes, the other reads `HOP_S` later. Ticks come as the engine
sends them: when a deadline is due, looked at each 100 ms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from benchmarks.storm_lab.clock import Clock
from benchmarks.storm_lab.dependency import SERVICE_S, Dependency, Done

from dalsegno.schemas.control import (
    ClockTick,
    ControlEvent,
    FaultPointChanged,
    Policy,
    QuotaGranted,
)
from dalsegno.schemas.outputs import FaultReport
from dalsegno.schemas.plan import RetryPolicy
from dalsegno.streams.core.actions import Instruct
from dalsegno.streams.core.faultpoint.actors import FaultPoints
from dalsegno.streams.core.faultpoint.point import Phase
from dalsegno.streams.core.faultpoint.points import Points
from dalsegno.streams.core.record import Record
from dalsegno.streams.core.recovery.holding import POINT, Holds, Repair
from dalsegno.streams.core.recovery.order import Standing
from dalsegno.streams.core.retry import delay_ms

NAME: Final = "validation"
HOP_S: Final = 0.008
TICK_CHECK_S: Final = 0.1
PARTITIONS: Final = 8
_T0_MS: Final = 1_800_000_000_000
_LINE: Final = POINT + NAME
_DEPENDS: Final = (NAME,)
_KIND: Final = ("flow", "validate")
_BEFORE: Final = 400


class World:
    """The fault point's actor, the partitions, and a dependency that went down at second 0."""

    def __init__(self, runs: int, returns_s: float, seed: int) -> None:
        self.clock = Clock()
        self.runs = runs
        self.done = 0
        self.attempts = 0
        self.probes_at_once = 0
        self.reports = 0
        self.orders = 0
        self.dependency = Dependency(returns_s, seed, self.clock.now, self.clock.at)
        self.actors = FaultPoints(0, PARTITIONS)
        self.sides = [Side(self, number) for number in range(PARTITIONS)]
        self._probing = 0
        spread_s = 0.5 / runs
        for run in range(runs):
            side = self.sides[run % PARTITIONS]
            self.clock.at(run * spread_s, side.ready(f"run-{seed}-{run}"))
        self.clock.at(0.0, self._ticks)

    @property
    def log_ms(self) -> int:
        """The broker's clock."""
        return _T0_MS + int(self.clock.now_s * 1_000)

    @property
    def phase(self) -> Phase:
        """Where the fault point stands."""
        point = self.actors.points.get(NAME)
        return point.phase if point is not None else Phase.HEALTHY

    def append(self, event: ControlEvent | FaultReport) -> None:
        """A record for the actor."""

        def read() -> None:
            record = Record(self.actors.position, self.log_ms, b"", b"", event)
            for output in self.actors.apply(record):
                assert isinstance(output.action, Instruct)
                order = output.action.event
                self.orders += 1
                self.clock.after(HOP_S, self.sides[order.partition].hears(order))

        self.clock.after(HOP_S, read)

    def _ticks(self) -> None:
        due_ms = self.actors.next_log_deadline_ms
        if due_ms is not None and due_ms <= self.log_ms:
            self.append(ClockTick(partition=0, number=self.actors.position))
        for side in self.sides:
            side.tick()
        self.clock.after(TICK_CHECK_S, self._ticks)

    def call(self, ended: Done) -> None:
        """A worker calls the dependency."""
        self.attempts += 1
        probing = self.phase is Phase.HALF_OPEN
        if probing:
            self._probing += 1
            self.probes_at_once = max(self.probes_at_once, self._probing)

        def heard(*, good: bool, span_s: float) -> None:
            self._probing -= probing
            ended(good=good, span_s=span_s)

        self.dependency.call(heard)


class Side:
    """One partition: its view of the fault point, and the steps that wait for it."""

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self._number = number
        self._holds = Holds()
        self.policy = Policy()
        self._points = Points(self, lambda name: self._holds.waiting(POINT + name), self._usual_ms)
        self._retry = RetryPolicy(max_infra_attempts=1_000)
        self._failures: dict[str, int] = {}
        self._offset = 0
        for _ in range(_BEFORE):
            self._points.succeeded(_DEPENDS, int(SERVICE_S * 1_000), 0, _KIND)

    @property
    def log_ms(self) -> int:
        """Log time of the partition."""
        return self._world.log_ms

    @staticmethod
    def _usual_ms(_flow: str, _step: str) -> int:
        return int(SERVICE_S * 1_000)

    def ready(self, run: str) -> Callable[[], None]:
        """The step of a run may go by its plan."""

        def go() -> None:
            if self._points.blocked(_DEPENDS):
                standing = Standing(self._world.log_ms, 1_000, 1_000)
                self._holds.put(_LINE, run, 0, Repair(_LINE, 1_000, 1_000), standing)
                self._points.demand(NAME)
            else:
                self._give_out(run)
            self._say()

        return go

    def _give_out(self, run: str) -> None:
        offset = self._offset
        self._points.take(_DEPENDS)
        self._points.took_off((run, 0), _DEPENDS, offset)
        world = self._world

        def ended(*, good: bool, span_s: float) -> None:
            world.clock.after(HOP_S, lambda: self._reported(run, offset, good=good, span_s=span_s))

        world.clock.after(HOP_S, lambda: world.call(ended))

    def _reported(self, run: str, offset: int, *, good: bool, span_s: float) -> None:
        world, points = self._world, self._points
        self._offset += 1
        points.landed((run, 0))
        if good:
            span_ms = int(span_s * 1_000)
            points.succeeded(_DEPENDS, span_ms, offset, _KIND)
            world.done += 1
        else:
            points.failed(_DEPENDS, "", "down", retry_after_ms=0, offset=offset)
            failures = self._failures[run] = self._failures.get(run, 0) + 1
            wait_ms = delay_ms(self._retry, run, "validate", failures, failures)
            world.clock.after(wait_ms / 1_000, self.ready(run))
        self._say()

    def hears(self, order: FaultPointChanged | QuotaGranted) -> Callable[[], None]:
        """A control event of the actor is read."""

        def read() -> None:
            self._offset += 1
            if isinstance(order, QuotaGranted):
                if self._points.granted(order):
                    self._serve()
            elif self._points.changed(order, self._offset):
                self._serve()
            self._say()

        return read

    def _serve(self) -> None:
        now_ms = self._world.log_ms
        while self._holds.waiting(_LINE) and not self._points.blocked(_DEPENDS):
            found = self._holds.take(_LINE, now_ms)
            assert found is not None
            self._give_out(found[0])
        self._points.spent(NAME)

    def tick(self) -> None:
        """The engine looks whether a tick is due."""
        if self._points.due_ms <= self._world.log_ms:
            self._world.clock.after(HOP_S, self._say)

    def _say(self) -> None:
        now_ms = self._world.log_ms
        if self._points.due_ms > now_ms:
            return
        for index, view in enumerate(self._points.due()):
            self._world.reports += 1
            self._offset += 1
            self._world.append(self._points.report(view, self._number, self._offset, index))
