"""Gives held steps their turn: what a release, or the pace of recovery, lets go by itself."""

from __future__ import annotations

from dalsegno.schemas.control import RecoveryFrozen, RecoveryReleased
from dalsegno.streams.core.moment import APPLIED, Moment, Ruling, refused
from dalsegno.streams.core.recovery.holding import PACED
from dalsegno.streams.core.runs import Runs
from dalsegno.streams.core.runstate import Run
from dalsegno.streams.core.units import Units


class Releasing:
    """Takes steps out of the lines of a partition, each in a unit of its own."""

    def __init__(self, now: Moment, runs: Runs, units: Units) -> None:
        self._now = now
        self._runs = runs
        self._units = units

    def control(self, event: RecoveryFrozen | RecoveryReleased) -> Ruling:
        """Freezes a scope, or begins its release."""
        freezes, log_ms = self._now.recovery.freezes, self._now.log_ms
        if isinstance(event, RecoveryFrozen):
            fault = freezes.freeze(event, log_ms)
            return refused("too_many_scopes", fault) if fault else APPLIED
        fault = freezes.release(event, log_ms)
        return refused("not_frozen", fault) if fault else APPLIED

    def pump(self) -> None:
        """Lets go what may go at this log time. Ends: a step that is held anew is so elsewhere."""
        recovery, log_ms = self._now.recovery, self._now.log_ms
        for line in recovery.freezes.due(log_ms):
            for _ in range(recovery.freezes.take_batch(line, log_ms)):
                if not self.release(line):
                    break
            if not recovery.holds.waiting(line):
                recovery.freezes.thaw(line)
        width_max = self._now.policy.recovery_width_max
        while recovery.pace.in_flight < recovery.pace.width(log_ms, width_max):
            if not self.release(PACED):
                return

    def release(self, line: str) -> bool:
        """Gives the next step of a line its turn. False when none waits."""
        found = self._now.recovery.holds.take(line, self._now.log_ms)
        if found is None:
            return False
        run = self._runs.get(found[0])
        assert isinstance(run, Run), "what has ended is in no line"
        self._units.release(run, found[1], line)
        return True
