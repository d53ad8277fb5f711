"""A fault point's actor with a clock that is moved by hand, and partitions that answer by hand."""

from __future__ import annotations

from dalsegno.schemas.control import (
    ClockTick,
    ControlEvent,
    FaultPointChanged,
    Policy,
    PolicySet,
    QuotaGranted,
)
from dalsegno.schemas.outputs import FaultReport
from dalsegno.streams.core.actions import Instruct
from dalsegno.streams.core.faultpoint.actors import FaultPoints
from dalsegno.streams.core.faultpoint.point import FaultPoint
from dalsegno.streams.core.record import Record

T0 = 1_800_000_000_000
NAME = "payments"
Order = FaultPointChanged | QuotaGranted


class Lab:
    """One faults partition. `at_ms` counts from the start; each report gets the next sequence."""

    def __init__(self, partitions: int = 4) -> None:
        self.actors = FaultPoints(0, partitions)
        self.partitions = partitions
        self.at_ms = 0
        self.orders: list[Order] = []
        self._sequences = 0

    def give(self, event: ControlEvent | FaultReport) -> list[Order]:
        """One record at the present time; returns the orders that came of it."""
        record = Record(self.actors.position, T0 + self.at_ms, b"", b"", event)
        made = [
            output.action.event
            for output in self.actors.apply(record)
            if isinstance(output.action, Instruct)
        ]
        self.orders += made
        return made

    def report(self, partition: int = 0, *, name: str = NAME, **fields: int) -> list[Order]:
        """A partition reports. `seen` is all that it was sent, unless said otherwise."""
        self._sequences += 1
        made: dict[str, int] = {
            "failures": 0,
            "successes": 0,
            "waiting": 0,
            "seen": self.number(name),
        }
        made |= {"offset": self._sequences} | fields
        if made["failures"] and not made["successes"]:
            made.setdefault("in_a_row", made["failures"])
        return self.give(FaultReport(fault_point=name, partition=partition, **made))

    def wait(self, ms: int) -> list[Order]:
        """Time passes, and a tick comes."""
        self.at_ms += ms
        return self.give(ClockTick(partition=0, number=self.actors.position))

    def until_due(self) -> list[Order]:
        """The clock moves to the next deadline, and a tick comes."""
        due_ms = self.actors.next_log_deadline_ms
        assert due_ms is not None
        return self.wait(max(0, due_ms - T0 - self.at_ms))

    def policy(self, policy: Policy) -> None:
        """The policy of the topic."""
        self.give(PolicySet(partition=0, number=self.actors.position, policy=policy))

    def number(self, name: str = NAME) -> int:
        """The last number that the point has given out."""
        point = self.actors.points.get(name)
        return point.number if point is not None else 0

    @property
    def point(self) -> FaultPoint:
        """The point that most tests are about."""
        return self.actors.points[NAME]

    def break_down(self, waiting: int = 100) -> None:
        """Five failures in a row: the breaker is open, and steps wait in partition 0."""
        self.report(failures=5)
        self.report(waiting=waiting)

    def ramp(self, waiting: int = 100) -> None:
        """Broken down, probed, and closed again: the window is 1."""
        self.break_down(waiting)
        self.until_due()
        self.report(successes=1, rtt_ms=50, waiting=waiting)


def permits(orders: list[Order]) -> int:
    """Permits that were granted."""
    return sum(order.permits for order in orders if isinstance(order, QuotaGranted))


def states(orders: list[Order]) -> list[tuple[int, str, int]]:
    """(partition, state, window) of all changes."""
    return [
        (order.partition, order.state, order.window)
        for order in orders
        if isinstance(order, FaultPointChanged)
    ]
