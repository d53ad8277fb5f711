"""What the log of a partition allows of fault points: permits granted, and handoffs given out.

An account kept from events and outputs alone; `check_views` looks at the fold's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from tests.simulation.promises import BrokenPromiseError

from dalsegno.schemas.control import BreakerState, FaultPointChanged, QuotaGranted
from dalsegno.schemas.outputs import Handoff
from dalsegno.streams.core.faultpoint.declared import dependency_of
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.runstate import Run


class PermitBook:
    """`held`: permits granted so far, by fault point that holds steps."""

    def __init__(self) -> None:
        self.held: dict[str, int] = {}
        self.given: Counter[str] = Counter()
        self.leases: dict[str, int] = {}
        self._seen: dict[tuple[type, str], int] = {}

    def heard(self, event: Any, at_ms: int) -> None:
        """An event is about to be applied, at log time `at_ms`."""
        if isinstance(event, FaultPointChanged) and self._fresh(event):
            if event.state is BreakerState.CLOSED and not event.window:
                self.held.pop(event.fault_point, None)
        elif isinstance(event, QuotaGranted) and self._fresh(event) and self._holds(event):
            self.held[event.fault_point] += event.permits
            self.leases[event.fault_point] = at_ms + event.lease_ms

    def _holds(self, event: QuotaGranted) -> bool:
        return event.fault_point in self.held

    def _fresh(self, event: FaultPointChanged | QuotaGranted) -> bool:
        return event.number > self._seen.get((type(event), event.fault_point), -1)

    def applied(self, event: Any) -> None:
        """After it was applied: timers that fire with an opening still go by what was before."""
        if not isinstance(event, FaultPointChanged | QuotaGranted) or not self._fresh(event):
            return
        self._seen[type(event), event.fault_point] = event.number
        if isinstance(event, QuotaGranted) or not (event.window or event.state != "closed"):
            return
        if event.state is BreakerState.OPEN or event.fault_point not in self.held:
            self.held[event.fault_point] = 0
            self.given[event.fault_point] = 0

    def holding(self, dependencies: Iterable[str]) -> list[str]:
        """The fault points that a step which depends on these needs a permit of."""
        names = set(dependencies)
        return [point for point in self.held if dependency_of(point) in names]

    def handed_out(self, handoff: Handoff, dependencies: Iterable[str]) -> list[str]:
        """A step goes. Returns the fault points that it needed permits of."""
        points = self.holding(dependencies)
        for name in points:
            self.given[name] += 1
            if self.given[name] > self.held[name]:
                raise BrokenPromiseError(
                    f"P9: {handoff.run_id}/{handoff.step} went without a permit of {name}"
                )
            if handoff.start_by_ms > self.leases[name]:
                raise BrokenPromiseError(
                    f"P9: {handoff.run_id}/{handoff.step} may start after its lease of {name}"
                )
        return points


def check_views(fold: Partition, at_ms: int) -> None:
    """What the fold itself says of its fault points, after a record appended at `at_ms`."""
    points = fold._now.points
    for name, view in points.views.items():
        waiting = points.waiting(name)
        if at_ms >= fold.log_ms and view.hand and view.hand[0][0] <= fold.log_ms:
            raise BrokenPromiseError(f"P9: a permit of {name} outlived its lease")
        if view.hand and not waiting and not view.shared:
            raise BrokenPromiseError(f"P9: permits of {name} are kept though nothing waits")
        if waiting and not view.due_ms:
            raise BrokenPromiseError(f"P6: {waiting} wait for {name} and nobody is told")
    for name, out in points._running.items():
        for run_id, place in out:
            run = fold._runs.get(run_id)
            if not isinstance(run, Run) or run.rows[place].flight is None:
                raise BrokenPromiseError(f"P9: {run_id} counts as out on {name}, and is not")
