"""The archiver of one engine: events of its partitions go to S3 before their topic forgets them.

A segment counts once the log says so (`ArchiveConfirmed`). While the archive is away, nothing else
is: what is not archived yet is counted, and an alert tells when it grows old.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable
from typing import Final

import structlog
from aiokafka import TopicPartition
from confluent_kafka import KafkaException

from dalsegno.schemas.control import ArchiveConfirmed
from dalsegno.storage.archive.archive import Archive, Manifest
from dalsegno.storage.archive.objects import ArchiveError, Trouble
from dalsegno.storage.archive.segment import SegmentCorrupt
from dalsegno.streams.agents.archive_restore import Restorer
from dalsegno.streams.agents.archive_states import StateArchiver
from dalsegno.streams.agents.archive_sweep import Sweep
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.state_codec import StateCorrupt
from dalsegno.streams.core.warm import WarmLost
from dalsegno.streams.engine import metrics_archive
from dalsegno.streams.engine.archiving import Segmenter, Wanted
from dalsegno.streams.engine.beside import unread
from dalsegno.streams.engine.daemon import in_daemon_thread
from dalsegno.streams.engine.errors import OutcomeUnknownError, RestoreError
from dalsegno.streams.engine.log_ages import LogAges
from dalsegno.streams.engine.ownership import Ownership
from dalsegno.streams.engine.task import RUNNING, PartitionTask

log = structlog.get_logger(__name__)

_LOOK_S: Final = 0.25
_PAUSE_FIRST_S: Final = 1.0
_PAUSE_MAX_S: Final = 60.0
_OWN: Final = frozenset({Trouble.MISSING, Trouble.DAMAGED, Trouble.EXISTS})
"""Troubles of one partition's objects or events. Any other is the store's."""
_SHARE: Final = 4
"""What stands alone in a topic with a retention is archived when this part of it has passed."""


async def archiver(ownership: Ownership) -> None:
    """Archive, and bring runs back, for as long as the engine runs."""
    settings = ownership.context.settings
    objects = ownership.context.objects
    if objects is None:
        # Runs that are wanted from an archive that nobody named must not wait unheard.
        await _restore(ownership, Restorer(None, ownership.context.metrics))
        return
    archive = Archive(objects, settings.archive_prefix)
    restorer = Restorer(archive, ownership.context.metrics)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(Archiver(ownership, archive).run())
            group.create_task(_restore(ownership, restorer))
    finally:
        await restorer.close()


async def _restore(ownership: Ownership, restorer: Restorer) -> None:
    """For ever, and whatever becomes of what is put."""
    while True:
        restorer.turn(list(ownership.tasks.values()))
        await restorer.rest(_LOOK_S)


class Archiver:
    """Takes the partitions in turn, one segment at a time."""

    def __init__(self, ownership: Ownership, archive: Archive) -> None:
        self._ownership = ownership
        self._settings = ownership.context.settings
        self._metrics = ownership.context.metrics
        self._segmenter = Segmenter(self._settings, ownership.context.layout.partitions, archive)
        self._since: dict[int, tuple[int, float]] = {}
        """By partition: since when its archive has stood at this offset."""
        self._more: dict[int, int] = {}
        """By partition: from where on it is behind; that is not waited with."""
        self._states = StateArchiver(
            archive, self._settings.archive, self._metrics, ownership.context.layout.partitions
        )
        self._sweep = Sweep(archive, self._settings.archive, self._metrics)
        self._alone: dict[int, tuple[int, float]] = {}
        """By partition: since when our own word has stood alone at this offset."""
        self._ages = LogAges(self._settings)
        self._kept_s = float("inf")
        self._bound_s = 0.0
        self._pauses: dict[int, tuple[float, float]] = {}
        """By partition whose own part is in trouble: for how long, and until when (monotonic)."""
        self._jitter = random.random

    async def run(self) -> None:
        """For ever."""
        while True:
            await self.turn()
            await asyncio.sleep(self._bound_s * (1 + self._jitter()) / 2 or _LOOK_S)

    async def turn(self) -> None:
        """One segment for each partition that is due."""
        await self._look_at_retention()
        tasks = list(self._ownership.tasks.values())
        self._metrics.clear(metrics_archive.ARCHIVE_AGE)
        due = [(task, wanted) for task in tasks if (wanted := self._due(task)) is not None]
        for task, wanted in due:
            if not await self._tried(task, self._segment(task, wanted)):
                return
        for task in tasks:
            fold = task.fold
            if not isinstance(fold, Partition) or task.state not in RUNNING or self._rests(task):
                continue
            if not await self._tried(task, self._states_of(task, fold)):
                return
        self._bound_s = 0.0

    async def _tried(self, task: PartitionTask, work: Awaitable[None]) -> bool:
        """False where the store or Kafka is in trouble: then no other partition is tried now."""
        try:
            await work
        except (ArchiveError, SegmentCorrupt, StateCorrupt) as error:
            return self._failed(task.number, error)
        except WarmLost as error:
            unread(task.warm, error)
        except (KafkaException, RestoreError, OutcomeUnknownError) as error:
            log.info("archiving waits for Kafka", partition=task.number, error=str(error))
            self._bound_s = _PAUSE_FIRST_S
            return False
        else:
            self._pauses.pop(task.number, None)
        return True

    async def _segment(self, task: PartitionTask, wanted: Wanted) -> None:
        manifest = await in_daemon_thread(
            lambda: self._segmenter.archive(wanted), f"archive-{wanted.partition}"
        )
        if manifest is not None:
            await self._confirm(task, manifest, wanted.end)

    async def _states_of(self, task: PartitionTask, fold: Partition) -> None:
        await self._sweep.turn(task.number, fold)
        await self._states.turn(task)

    def _rests(self, task: PartitionTask) -> bool:
        """Whether a partition waits, since its own part of the archive is in trouble."""
        return time.monotonic() < self._pauses.get(task.number, (0.0, 0.0))[1]

    def _due(self, task: PartitionTask) -> Wanted | None:
        """What is to be archived now, if it has waited long enough.

        A partition that was just taken over is due at once: who had it before may have waited.
        """
        fold, number = task.fold, task.number
        if not isinstance(fold, Partition) or task.state not in RUNNING:
            return None
        first, end = task.archive.archived_to(fold), self._saved_to(number)
        now_s, interval_s = time.monotonic(), self._settings.archive.interval_ms / 1_000
        alone = end == first + 1 and task.archive.is_ours(fold, first)
        nothing = end <= first or (alone and not self._leaves_soon(number, first, now_s))
        known = self._since.get(number)
        if known is None:
            known = self._since[number] = (first, now_s - interval_s)
        elif nothing or known[0] != first:
            known = self._since[number] = (first, now_s)
        waited_s = 0.0 if nothing else now_s - known[1]
        self._metrics.gauge(metrics_archive.ARCHIVE_AGE, waited_s, partition=str(number))
        # An erasure waits for what came before it to be archived, and so to be taken out.
        waits = any(stone.number < 0 and stone.offset >= first for _, stone in fold.erasures)
        early = waited_s < interval_s and not waits and self._more.get(number) != first
        if nothing or early or self._rests(task):
            return None
        return Wanted(number, first, end, dict(fold.erasures))

    def _leaves_soon(self, number: int, first: int, now_s: float) -> bool:
        """Whether our own word, which alone is nothing to archive, is about to leave its topic."""
        known = self._alone.get(number)
        if known is None or known[0] != first:
            known = self._alone[number] = (first, now_s)
        return now_s - known[1] >= self._kept_s / _SHARE

    async def _look_at_retention(self) -> None:
        """How long the events topic keeps what it has."""
        try:
            self._kept_s = await self._ages.kept_ms(self._settings.topics.events) / 1_000
        except KafkaException as error:
            log.info("retention is not known now", error=str(error))

    def _saved_to(self, number: int) -> int:
        """Up to where the partition is in a checkpoint: nothing before it can be put out again."""
        topic = self._settings.topics.events
        return self._ownership.saved_positions().get(TopicPartition(topic, number), 0)

    async def _confirm(self, task: PartitionTask, manifest: Manifest, end: int) -> None:
        number = manifest.partition
        event = ArchiveConfirmed(
            partition=number,
            number=manifest.last_offset,
            segment=manifest.segment,
            digest=manifest.digest,
            first_offset=manifest.first_offset,
            last_offset=manifest.last_offset,
        )
        appended = await task.append_control(event)
        task.archive.said(appended.offset, manifest.last_offset + 1)
        if manifest.last_offset + 1 < end:
            self._more[number] = manifest.last_offset + 1
        else:
            self._more.pop(number, None)
        self._metrics.count(metrics_archive.ARCHIVE_SEGMENTS)
        self._metrics.count(metrics_archive.ARCHIVE_BYTES, manifest.size)
        log.info(
            "archived", partition=number, segment=manifest.segment,
            records=manifest.records, bytes=manifest.size,
        )  # fmt: skip

    def _failed(self, partition: int, error: ArchiveError | SegmentCorrupt | StateCorrupt) -> bool:
        """Whether the others may go on: it is this partition's objects or events, not the store."""
        trouble = error.trouble if isinstance(error, ArchiveError) else Trouble.DAMAGED
        self._metrics.count(metrics_archive.ARCHIVE_FAILURES, trouble=str(trouble))
        own = trouble in _OWN
        pause_s = self._pauses.get(partition, (0.0, 0.0))[0] if own else self._bound_s
        pause_s = min(_PAUSE_MAX_S, 2 * pause_s or _PAUSE_FIRST_S)
        if own:
            self._pauses[partition] = (pause_s, time.monotonic() + pause_s)
        else:
            self._bound_s = pause_s
        log.warning("not archived", partition=partition, error=str(error), again_within_s=pause_s)
        return own
