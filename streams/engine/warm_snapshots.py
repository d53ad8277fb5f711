"""Snapshot chains of one partition while it runs: versions that the fold made become links.

Beside the loop, after their checkpoint has been put in the store, in short turns with pauses, so
that neither intake nor the store waits for them. When a link is written is in no log, and nothing
depends on it.

1. `captured`: a checkpoint is captured; the versions up to it are noted;
2. `committed`: it is in the changelog;
3. `take`, and `stored` when it is in the store: their links may be written (`write`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import Final

import structlog

from dalsegno.storage.snapshots import recorder
from dalsegno.storage.snapshots.errors import SnapshotCorrupt
from dalsegno.storage.snapshots.pace import Pace
from dalsegno.storage.snapshots.recorder import Recorder
from dalsegno.storage.warm import WarmStore
from dalsegno.storage.warm_codec import RUN
from dalsegno.streams.core.state_codec import KIND_RUN, read_prefix
from dalsegno.streams.core.versions import Made, Versions, VersionView, view_past
from dalsegno.streams.engine import metrics_snapshots as catalogue
from dalsegno.streams.engine.metrics import EngineMetrics
from dalsegno.streams.engine.settings import EngineSettings

log = structlog.get_logger(__name__)

TURN_S: Final = 0.01
SHARE: Final = 0.1
"""Of the time, at most, that all partitions of an engine together spend on links."""
CLOSING_S: Final = 2.0
"""For the links that wait when a partition is closed; what is left then, the log has."""


class Snapshots:
    """See above. `write` and `finish` block; all else is on the event loop."""

    def __init__(
        self,
        settings: EngineSettings,
        store: WarmStore,
        versions: Versions,
        metrics: EngineMetrics,
        *,
        bytes_max: int = recorder.NOTES_BYTES_MAX,
    ) -> None:
        """`bytes_max`: what it may keep in memory."""
        self._versions = versions
        self._metrics = metrics
        self.pace = Pace(
            versions_max=settings.snapshot_versions_max, learned=settings.snapshot_learned
        )
        self._recorder = Recorder(
            store.chains,
            store.load,
            self.pace,
            keep=settings.snapshot_links,
            bytes_max=bytes_max,
        )
        self._waiting_max = recorder.pending_share(bytes_max)
        self._captured: list[Made] = []
        self._committed: list[Made] = []
        self._taken: list[Made] = []
        self.weight = 0
        """Bytes of the versions that no store has yet, more or less."""
        versions.keep()

    @property
    def pending(self) -> int:
        """Versions that no link holds."""
        return self._recorder.pending

    @property
    def due(self) -> bool:
        """Whether links are to be written."""
        return self._recorder.due

    @property
    def bytes_held(self) -> int:
        """What it keeps in memory, more or less."""
        return self.weight + self._recorder.weight

    def captured(self) -> None:
        """A checkpoint is captured."""
        made = self._versions.drain()
        self._captured += made
        self.weight += sum(each.weight for each in made)
        if self.weight > self._waiting_max:
            # The store has taken nothing for long: chains will go on behind a gap.
            self.weight = 0
            for made in (self._taken, self._committed, self._captured):
                self._metrics.count(catalogue.SNAPSHOT_GIVEN_UP, len(made))
                made.clear()

    def committed(self) -> None:
        """It is in the changelog."""
        self._committed += self._captured
        self._captured = []

    def take(self) -> None:
        """What is committed is being put in the store."""
        self._taken += self._committed
        self._committed = []

    def stored(self, parts: Mapping[bytes, bytes | None]) -> None:
        """What was taken is in the store, with these parts. Chains of runs that are no longer live
        went with that write.
        """
        taken, self._taken = self._taken, []
        self.weight -= sum(each.weight for each in taken)
        self._recorder.note(taken)
        for run_id in left_in(parts):
            self._recorder.forget(run_id)
        self._recorder.tick(time.monotonic())

    def write(self) -> None:
        """One turn. Raises `StoreBusyError`, `StoreFullError`, `StoreLostError`."""
        self._recorder.write(TURN_S)

    def finish(self) -> None:
        """All that waits, within a time. Raises as `write`."""
        self._recorder.everything()
        self._recorder.write(CLOSING_S)

    def tell(self) -> None:
        """What was written goes to the metrics. Not while something is being written."""
        told, metrics = self._recorder.told(), self._metrics
        for kind, count in told.links.items():
            metrics.count(catalogue.SNAPSHOT_LINKS, count, kind=kind.name.lower())
        for kind, size in told.bytes.items():
            metrics.count(catalogue.SNAPSHOT_BYTES, size, kind=kind.name.lower())
        for seconds in told.seconds:
            metrics.observe(catalogue.SNAPSHOT_SECONDS, seconds)
        metrics.count(catalogue.SNAPSHOT_PRUNED, told.pruned)
        metrics.count(catalogue.SNAPSHOT_GIVEN_UP, told.given_up)
        metrics.count(catalogue.SNAPSHOT_BROKEN, len(told.broken))
        for error in told.broken:
            log.error("snapshot chain begun anew", error=error)
        self._corrupt(told.corrupt)

    def _corrupt(self, faults: list[SnapshotCorrupt]) -> None:
        for fault in faults:
            self._metrics.count(catalogue.SNAPSHOT_CORRUPT, fault=fault.fault)
            log.warning("snapshot not used", run_id=fault.run_id, error=str(fault))

    async def look(self, run_id: str, run_version: int, readers: Executor) -> VersionView | None:
        """A live run at one of its versions, None if neither chain nor memory has that.

        Raises `StoreLostError`.
        """
        whose = self._versions.whose(run_id)
        if whose is None:
            return None
        waiting = [*self._taken, *self._committed, *self._captured]
        later = self._recorder.noted(run_id)
        later += [each for each in waiting if each.run_id == run_id]
        later += self._versions.of(run_id)
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(readers, self._recorder.look, whose, run_version, later)
        self._corrupt(list(found.faults))
        return None if found.past is None else view_past(found.past, whose)


def left_in(parts: Mapping[bytes, bytes | None]) -> list[str]:
    """Runs that ended, were erased, or are at rest elsewhere."""
    return [
        key[1:].decode()
        for key, value in parts.items()
        if key[:1] == RUN and (value is None or read_prefix(value).kind != KIND_RUN)
    ]
