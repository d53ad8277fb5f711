"""Deadlines that have passed, fired one by one in the order (deadline, run, step)."""

from __future__ import annotations

from dalsegno.streams.core.arrivals import Arrivals
from dalsegno.streams.core.cold import Cold
from dalsegno.streams.core.cold_runs import ColdRuns
from dalsegno.streams.core.moment import Moment
from dalsegno.streams.core.runs import Runs
from dalsegno.streams.core.runstate import Run
from dalsegno.streams.core.units import Units


class Firing:
    """Fires all deadlines that have passed. Each unit moves its deadline on, so this ends."""

    def __init__(
        self, now: Moment, runs: Runs, units: Units, arrivals: Arrivals, cold: ColdRuns
    ) -> None:
        self._now = now
        self._runs = runs
        self._units = units
        self._arrivals = arrivals
        self._cold = cold

    def fire(self) -> None:
        """Log-time ones first."""
        log, live, clock = self._runs.log_timers, self._runs.live_timers, self._now.clock
        while True:
            if clock.log_ms >= log.soonest_ms:
                due = log.next()
                if due is not None and due[0] <= clock.log_ms:
                    self._one(due[1], live=False)
                    continue
            if clock.live_ms < live.soonest_ms:
                return
            due = live.next()
            if due is None or due[0] > clock.live_ms:
                return
            self._one(due[1], live=True)

    def _one(self, run_id: str, *, live: bool) -> None:
        held = self._runs.get(run_id)
        if isinstance(held, Run):
            self._units.timer(held, live=live)
            self._arrivals.after(held)
        elif isinstance(held, Cold):
            self._cold.due(held)
        elif held is not None:
            self._arrivals.stub_due(held)
