"""States of runs that wait for long go to the archive: beside the loop, a segment at a time.

What is chosen when is in no log. A run that moves before its segment is confirmed stays where it
is: the fold compares. A crash between any two steps leaves an object that nothing names.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import structlog

from dalsegno.schemas.control import ArchiveConfirmed
from dalsegno.storage.archive.archive import Archive, Manifest
from dalsegno.streams.core.archived import Archived, Idle, Resting
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.engine import metrics_archive
from dalsegno.streams.engine.archive_settings import ArchiveSettings
from dalsegno.streams.engine.daemon import in_daemon_thread
from dalsegno.streams.engine.metrics import EngineMetrics
from dalsegno.streams.engine.state_segments import segment_of
from dalsegno.streams.engine.task import PartitionTask

log = structlog.get_logger(__name__)

SEGMENT_RUNS_MAX: Final = 500
"""The fold compares all of a segment's runs while it applies one record."""
_LOOKED_AT_ONCE: Final = 100
"""Runs that are looked at in one turn."""
_SLICE: Final = 20
"""Of them so many hold the loop."""


@dataclass(slots=True)
class _Walk:
    """One walk through the runs of a partition. `names`: those that are in memory, without a
    store. `said`: our last word stands in the log there.
    """

    after: str = ""
    names: list[str] | None = None
    place: int = 0
    chosen: list[Resting] = field(default_factory=list)
    bytes_chosen: int = 0
    next_s: float = 0.0
    said: int = -1


class StateArchiver:
    """For the partitions of one engine. `turn` is called often, and does little."""

    def __init__(
        self,
        archive: Archive,
        settings: ArchiveSettings,
        metrics: EngineMetrics,
        partitions: int,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """`now_ms`: the time of day, near enough to the broker's."""
        self._archive = archive
        self._settings = settings
        self._metrics = metrics
        self._partitions = partitions
        self._now_ms = now_ms
        self._walks: dict[int, _Walk] = {}

    async def turn(self, task: PartitionTask) -> None:
        """Looks at some runs of the partition, and archives those that have been chosen.

        Raises `ArchiveError`, `SegmentCorrupt`, `OutcomeUnknownError`, `WarmLost`.
        """
        fold = task.fold
        if not self._settings.idle_ms or not isinstance(fold, Partition):
            return
        walk = self._walks.setdefault(task.number, _Walk())
        if fold.position <= walk.said or time.monotonic() < walk.next_s:
            return
        through = await self._look(walk, fold.archived)
        full = len(walk.chosen) >= SEGMENT_RUNS_MAX
        if walk.chosen and (through or full or walk.bytes_chosen >= self._settings.segment_bytes):
            await self._send(task, fold, walk)
        if through:
            wait_s = self._settings.interval_ms / 1_000
            self._walks[task.number] = _Walk(next_s=time.monotonic() + wait_s, said=walk.said)

    async def _look(self, walk: _Walk, archived: Archived) -> bool:
        """The next few runs; True when it was through all of them."""
        now_ms, idle_ms = self._now_ms(), self._settings.idle_ms
        # One that is due soon would only come back.
        idle = Idle(now_ms - idle_ms, now_ms + idle_ms // 4)
        page = archived.ids(walk.after, _LOOKED_AT_ONCE)
        if page is None:
            if walk.names is None:
                walk.names = archived.names()
            page = list(islice(walk.names, walk.place, walk.place + _LOOKED_AT_ONCE))
            walk.place += len(page)
        for first in range(0, len(page), _SLICE):
            await asyncio.sleep(0)
            resting, outside = archived.split(page[first : first + _SLICE], idle)
            resting += archived.outside(outside, idle)
            walk.chosen += resting
            walk.bytes_chosen += sum(len(each.parts) for each in resting)
        walk.after = page[-1] if page else walk.after
        return len(page) < _LOOKED_AT_ONCE

    async def _send(self, task: PartitionTask, fold: Partition, walk: _Walk) -> None:
        chosen, walk.chosen, walk.bytes_chosen = walk.chosen, [], 0
        position, number = fold.position, task.number
        plans = {each.plan: fold.archived.plan_parts(each.plan) for each in chosen}

        def put() -> Manifest:
            data = segment_of(number, self._partitions, position, chosen, plans)
            return self._archive.put(data)

        manifest = await in_daemon_thread(put, f"states-{number}")
        appended = await task.append_control(confirmation(manifest, chosen))
        walk.said = appended.offset
        self._metrics.count(metrics_archive.ARCHIVE_SEGMENTS)
        self._metrics.count(metrics_archive.ARCHIVE_BYTES, manifest.size)
        self._metrics.count(metrics_archive.ARCHIVE_RUNS_LEFT, len(chosen))
        log.info(
            "states archived", partition=number, segment=manifest.segment,
            runs=len(chosen), bytes=manifest.size,
        )  # fmt: skip


def confirmation(manifest: Manifest, chosen: list[Resting]) -> ArchiveConfirmed:
    """What the log is told of a segment of states."""
    return ArchiveConfirmed(
        partition=manifest.partition,
        number=manifest.last_offset,
        segment=manifest.segment,
        digest=manifest.digest,
        first_offset=manifest.first_offset,
        last_offset=manifest.last_offset,
        run_ids=tuple(each.run_id for each in chosen),
        run_digests=tuple(each.digest for each in chosen),
    )
