"""Looks, all the time and slowly, for runs and steps that wait for nobody (P6). The count is zero.

One walk goes over every run of a partition, a few milliseconds at a time between batches, and then
rests. What it finds is counted and named in the log; nothing is changed by it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

import structlog

from dalsegno.streams.core.partition import Partition
from dalsegno.streams.engine import metrics_catalogue as catalogue
from dalsegno.streams.engine.ownership import Ownership
from dalsegno.streams.engine.task import RUNNING, PartitionTask

log = structlog.get_logger(__name__)

REST_S: Final = 30.0
SLICE_S: Final = 0.002
PAUSE_S: Final = 0.05
"""With a slice of 2 ms: at most 4 % of the event loop."""
_NAMED_MAX: Final = 20
"""Findings of one walk that are named in the log."""


class Reconciler:
    """Owns the walk of one engine. Results are in `Ownership.unowned`, by partition."""

    def __init__(
        self,
        ownership: Ownership,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause_s: float = PAUSE_S,
    ) -> None:
        self._ownership = ownership
        self._clock = clock
        self._pause_s = pause_s

    async def run(self) -> None:
        """Walk for ever. Ends with the engine."""
        while True:
            await asyncio.sleep(REST_S)
            await self.walk()

    async def walk(self) -> None:
        """Every run of every partition that runs here, once."""
        ownership = self._ownership
        for task in list(ownership.tasks.values()):
            try:
                found = await self._partition(task)
            except Exception:
                # The boundary of the walk: what cannot be looked at is counted, the rest looked at.
                log.exception("reconciler failed", partition=task.number)
                ownership.context.metrics.count(catalogue.RECONCILER_FAILURES)
            else:
                if found is not None:
                    ownership.unowned[task.number] = found
        for number in set(ownership.unowned) - set(ownership.tasks):
            del ownership.unowned[number]

    async def _partition(self, task: PartitionTask) -> int | None:
        """How much waits for nobody; None if the partition is not, or no longer, run here."""
        fold = task.fold
        if not isinstance(fold, Partition) or task.state not in RUNNING:
            return None
        found = 0
        until_s = self._clock() + SLICE_S
        for run_id in list(fold.held_ids()):
            for waits in fold.previews.unowned(run_id):
                found += 1
                if found <= _NAMED_MAX:
                    log.error(
                        "waits for nobody",
                        partition=task.number,
                        run_id=waits.run_id,
                        step=waits.step,
                        state=waits.state,
                        why=waits.why,
                    )
            if self._clock() >= until_s:
                await asyncio.sleep(self._pause_s)
                if task.fold is not fold or task.state not in RUNNING:
                    return None
                until_s = self._clock() + SLICE_S
        return found
