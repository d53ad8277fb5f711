"""Applies one batch in slices of a few milliseconds, so that no batch holds the event loop.

Where a slice ends is in no log, so nothing depends on it: each record is a unit of its own.
"""

from __future__ import annotations

from typing import Final

from dalsegno.schemas.control import DecisionMade
from dalsegno.schemas.events import InformationSupplied, RunStarted, StepCompleted
from dalsegno.streams.core.actions import Output
from dalsegno.streams.engine.batch import Batch
from dalsegno.streams.engine.fold import Clock, Fold
from dalsegno.streams.engine.outputs import Outputs
from dalsegno.streams.engine.reader import EventReader
from dalsegno.streams.engine.signals import Signals

SLICE_S: Final = 0.005
"""A checkpoint takes some five round trips, each of which waits for a slice of every partition."""
# Events that change contexts.
_WRITERS: Final = (StepCompleted, RunStarted, InformationSupplied, DecisionMade)


class Applying:
    """One batch under way. `completed`: steps that were reported completed in it. `size_bytes`: of
    the records that the last slice applied.
    """

    def __init__(
        self, batch: Batch, fold: Fold, outputs: Outputs, reader: EventReader, signals: Signals
    ) -> None:
        self.batch = batch
        self.completed: set[tuple[str, str]] = set()
        self.size_bytes = 0
        self._fold = fold
        self._outputs = outputs
        self._signals = signals
        self._records = reader.read(fold, batch.records)

    def slice(self, clock: Clock) -> bool:
        """Apply records until the slice is used up. True when the batch is through.

        Raises what reading and `apply` raise; the records before are applied then.
        """
        apply, near, started = self._fold.apply, self._signals.near, self._signals.started
        made: list[Output] = []
        until_s = clock() + SLICE_S
        self.size_bytes = 0
        # What it puts out is encoded and counted behind the loop: a short loop is the quicker one.
        try:
            for record in self._records:
                produced = apply(record)
                self.size_bytes += len(record.value)
                event = record.event
                if isinstance(event, StepCompleted):
                    self.completed.add((event.run_id, event.step))
                elif type(event) is RunStarted:
                    started(event.run_id, event.flow)
                if produced:
                    made += produced
                    if isinstance(event, _WRITERS):
                        near(self._fold.near_limits(event.run_id))
                if clock() >= until_s:
                    return False
            return True
        finally:
            # Also when a record stops the partition: those before it are whole.
            self._outputs.add(made)
            self._outputs.flush()
            if made:
                self._signals.outputs(made)
