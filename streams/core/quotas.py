"""A partition's side of fault points: states and quotas come in, steps go, reports go out."""

from __future__ import annotations

from typing import Final

from dalsegno.schemas.control import (
    FaultPointChanged,
    PartitionControl,
    QuotaGranted,
    RecoveryFrozen,
    RecoveryReleased,
)
from dalsegno.streams.core.actions import ReportFault
from dalsegno.streams.core.faultpoint.attempts import are_out
from dalsegno.streams.core.moment import APPLIED, Moment, Ruling, refused
from dalsegno.streams.core.recovery.holding import POINT
from dalsegno.streams.core.releasing import Releasing
from dalsegno.streams.core.runs import Runs
from dalsegno.streams.core.runstate import Run

_FAULTS: Final = "faults"
# Steps that have their turn and cannot use it, in one go: they wait for something else by then.
_VAIN_TURNS_MAX: Final = 256


class Quotas:
    """What `FaultPointChanged` and `QuotaGranted` do to a partition, and what it says back."""

    def __init__(self, now: Moment, runs: Runs, releasing: Releasing) -> None:
        self._now = now
        self._runs = runs
        self._releasing = releasing

    def after(self, event: PartitionControl) -> Ruling:
        """Does what a control event says that has just been numbered."""
        if isinstance(event, FaultPointChanged | QuotaGranted):
            return self.control(event)
        if isinstance(event, RecoveryFrozen | RecoveryReleased):
            return self._releasing.control(event)
        return APPLIED

    def control(self, event: FaultPointChanged | QuotaGranted) -> Ruling:
        """Takes a fault point's state or permits, and gives out what may go now."""
        now = self._now
        points = now.points
        if isinstance(event, QuotaGranted):
            if not points.granted(event):
                return refused("not_held", "nothing waits for permits of this fault point any more")
            self._serve(event.fault_point)
        elif points.changed(event, now.outbox.offset):
            while self._releasing.release(POINT + event.fault_point):
                pass
        return APPLIED

    def _serve(self, name: str) -> None:
        """In recovery order, as far as permits reach. A step that lacks another fault point's
        permit goes to that line and leaves this one to the next.
        """
        now, line = self._now, POINT + name
        view = now.points.views[name]
        vain = 0
        while view.hand and vain < _VAIN_TURNS_MAX:
            before = view.permits
            if not self._releasing.release(line):
                break
            vain += view.permits == before
        now.points.spent(name)

    def report(self) -> None:
        """Says what is due, under the record that moved the log."""
        now = self._now
        for view in now.points.due():
            sequence = now.outbox.next(_FAULTS)
            made = now.points.report(view, now.partition, sequence.offset, sequence.index)
            now.outbox.put(_FAULTS, ReportFault(made))

    def load(self) -> None:
        """After a restore: in bad times, the runs with attempts out are looked at."""
        points = self._now.points
        if points.holding:
            for run_id in self._runs.flying():
                run = self._runs.get(run_id)
                if isinstance(run, Run):
                    are_out(points, run)
