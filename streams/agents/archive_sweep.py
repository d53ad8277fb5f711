"""The archiver's sweep: what nobody needs leaves the bucket, a partition at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

import structlog

from dalsegno.storage.archive.archive import Archive
from dalsegno.storage.archive.sweep import OldStates, old_states, superfluous
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.engine import metrics_archive
from dalsegno.streams.engine.archive_settings import ArchiveSettings
from dalsegno.streams.engine.daemon import in_daemon_thread
from dalsegno.streams.engine.metrics import EngineMetrics

log = structlog.get_logger(__name__)

_RUNS_AT_ONCE: Final = 20
"""Looked at between two turns of the loop: each may be read from the local database."""


class Sweep:
    """By the owner of a partition, between two segments."""

    def __init__(self, archive: Archive, settings: ArchiveSettings, metrics: EngineMetrics) -> None:
        self._archive = archive
        self._settings = settings
        self._metrics = metrics
        self._next_s: dict[int, float] = {}

    async def turn(self, partition: int, fold: Partition) -> None:
        """Sweep the partition if it is due. Raises `ArchiveError`, `SegmentCorrupt`, `WarmLost`."""
        now_s, archived_to = time.monotonic(), fold.archived_to
        if now_s < self._next_s.get(partition, 0.0):
            return
        self._next_s[partition] = now_s + self._settings.sweep_interval_ms / 1_000
        name = f"sweep-{partition}"
        if archived_to:
            await in_daemon_thread(lambda: self._sweep(partition, archived_to), name)
        age_ms = self._settings.orphan_age_ms
        old = await in_daemon_thread(
            lambda: list(old_states(self._archive, partition, age_ms)), name
        )
        unneeded = [each.segment for each in old if not await _is_needed(fold, each)]
        if unneeded:
            await in_daemon_thread(lambda: self._remove(partition, "states", unneeded), name)

    def _sweep(self, partition: int, archived_to: int) -> None:
        found = superfluous(self._archive, partition, archived_to, self._settings.orphan_age_ms)
        if found.broken:
            log.error(
                "the archive has a gap below what the log confirmed: nothing is swept",
                partition=partition,
                archived_to=archived_to,
            )
            self._metrics.count(metrics_archive.ARCHIVE_FAILURES, trouble="missing")
        gone = tuple(self._archive.replaced(partition))
        for what, names in (
            ("unfinished", found.unfinished), ("superseded", found.superseded), ("replaced", gone),
        ):  # fmt: skip
            if names:
                self._remove(partition, what, names)

    def _remove(self, partition: int, what: str, names: Sequence[str]) -> None:
        failed = self._archive.delete(names)
        for error in failed.values():
            self._metrics.count(metrics_archive.ARCHIVE_FAILURES, trouble=str(error.trouble))
            log.warning("not swept", partition=partition, error=str(error))
        count = len(names) - len(failed)
        self._metrics.count(metrics_archive.ARCHIVE_SWEPT, count, what=what)
        log.info("swept", partition=partition, what=what, segments=count)


async def _is_needed(fold: Partition, states: OldStates) -> bool:
    if states.position > fold.position:
        return True  # an owner that was away, or is behind, cannot judge
    archived = fold.archived
    for place, run_id in enumerate(states.run_ids):
        if not place % _RUNS_AT_ONCE:
            await asyncio.sleep(0)
        if archived.may_need(run_id, states.newest_ms):
            return True
    return False
