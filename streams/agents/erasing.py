"""Removes erased runs from the stores beside the log, and says so in the log.

The fold has forgotten the run when it reads the request. Then, once that is in a checkpoint: the
local database is compacted, the archive rewritten, and the owner appends `ErasureConfirmed` with
what was removed and the date by which Kafka's logs have forgotten the rest. A crash anywhere leaves
the erasure unconfirmed, and the next owner begins again.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final, NamedTuple

import structlog
from aiokafka import TopicPartition
from confluent_kafka import KafkaException

from dalsegno.schemas.control import ErasedFrom, ErasureConfirmed
from dalsegno.storage.archive.archive import Archive
from dalsegno.storage.archive.objects import ArchiveError
from dalsegno.storage.archive.records import RecordsCorrupt
from dalsegno.storage.archive.segment import SegmentCorrupt
from dalsegno.storage.blobs.sweep import Forgetting
from dalsegno.streams.agents.blobs import SweepEndedError, Sweeper
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.warm import WarmLost
from dalsegno.streams.engine import metrics_erasing
from dalsegno.streams.engine.blanking import Stones
from dalsegno.streams.engine.daemon import in_daemon_thread
from dalsegno.streams.engine.errors import OutcomeUnknownError, RestoreError
from dalsegno.streams.engine.forgetting import FOREVER_MS, gone_by_ms
from dalsegno.streams.engine.log_ages import LogAges
from dalsegno.streams.engine.ownership import Ownership
from dalsegno.streams.engine.rewriting import Rewritten, blobs_named, rewrite
from dalsegno.streams.engine.task import RUNNING, PartitionTask

log = structlog.get_logger(__name__)

_LOOK_S: Final = 0.5
_SWEEP_S: Final = 60.0
_PAUSE_S: Final = 5.0
_NUDGE_MIN_S: Final = 1.0
_LOOK_BACK_S: Final = 60.0
_AGAIN_S: Final = 600.0
_RECENT_MS: Final = 2 * 86_400_000


async def eraser(ownership: Ownership) -> None:
    """Erase for as long as the engine runs."""
    settings = ownership.context.settings
    objects = ownership.context.objects
    archive = None if objects is None else Archive(objects, settings.archive_prefix)
    await Eraser(ownership, archive).run()


class Due(NamedTuple):
    """Erasures of a partition that can be carried out now, by the digest of the run."""

    task: PartitionTask
    fold: Partition
    stones: Stones


class Again(NamedTuple):
    """When the archive is looked through once more, for which runs of whose partition."""

    task: PartitionTask
    runs: frozenset[bytes]
    at_s: float


class Eraser:
    """Takes the partitions in turn."""

    def __init__(self, ownership: Ownership, archive: Archive | None) -> None:
        self._ownership = ownership
        self._context = ownership.context
        self._archive = archive
        blobs = ownership.context.blobs
        self._blobs = None if blobs is None else Sweeper(ownership, blobs)
        self._ages = LogAges(ownership.context.settings)
        self._said: dict[bytes, int] = {}
        """By run: the number of our word, which the fold has perhaps not read yet."""
        self._again: dict[int, Again] = {}
        self._swept_s = 0.0
        self._nudged_s: dict[int, float] = {}
        self._asked_s: dict[int, float] = {}
        self._gone: dict[int, int] = {}
        self._overdue: dict[int, int] = {}

    async def run(self) -> None:
        """For ever."""
        while True:
            well = await self.turn()
            await asyncio.sleep(_LOOK_S if well else _PAUSE_S)

    async def turn(self) -> bool:
        """Carries out what is due. False when something has failed and is tried again later; it
        holds up no other partition.
        """
        self._figures()
        await self._sweep()
        well = True
        for task in list(self._ownership.tasks.values()):
            due = self._due(task)
            try:
                if due is not None:
                    await self._erase(due)
                await self._keep_moving(task)
                await self._look_back(task)
                await self._rewrite_again(task)
            except (ArchiveError, SegmentCorrupt, RecordsCorrupt) as error:
                well = self._failed(task.number, "archive", error)
            except (SweepEndedError, WarmLost) as error:
                well = self._failed(task.number, "blobs", error)
            except (KafkaException, RestoreError, OutcomeUnknownError) as error:
                well = self._failed(task.number, "log", error)
        return well

    def _figures(self) -> None:
        """Of what is owned now: what has gone is the next owner's to tell."""
        metrics, owned = self._context.metrics, self._ownership.tasks
        metrics.clear(metrics_erasing.ERASURE_AGE)
        metrics.clear(metrics_erasing.ERASURE_OVERDUE)
        self._overdue = {n: count for n, count in self._overdue.items() if n in owned}
        for number, count in self._overdue.items():
            metrics.gauge(metrics_erasing.ERASURE_OVERDUE, count, partition=str(number))

    def _due(self, task: PartitionTask) -> Due | None:
        fold = task.fold
        if not isinstance(fold, Partition) or task.state not in RUNNING:
            return None
        waiting = {digest: stone for digest, stone in fold.erasures if stone.number < 0}
        oldest = min((stone.erased_ms for stone in waiting.values()), default=0)
        waited_s = (_now_ms() - oldest) / 1_000 if waiting else 0.0
        self._context.metrics.gauge(
            metrics_erasing.ERASURE_AGE, max(0.0, waited_s), partition=str(task.number)
        )
        saved_to = self._saved_to(task.number)
        if self._archive is not None:
            # Only then is all that came before the request in some segment, and can be taken out.
            saved_to = min(saved_to, fold.archived_to)
        ready = {
            digest: stone
            for digest, stone in waiting.items()
            if stone.offset < saved_to and self._said.get(digest) != stone.offset
        }
        return Due(task, fold, ready) if ready else None

    def _saved_to(self, number: int) -> int:
        topic = self._context.settings.topics.events
        return self._ownership.saved_positions().get(TopicPartition(topic, number), 0)

    async def _erase(self, due: Due) -> None:
        warm = due.task.warm
        if warm is not None and not await warm.forget():
            return
        blobs = await self._forget_blobs(due)
        rewritten = Rewritten()
        archive, number = self._archive, due.task.number
        archived_to = due.fold.archived_to
        if archive is not None:
            rewritten = await in_daemon_thread(
                lambda: rewrite(archive, number, due.stones, archived_to), f"erase-{number}"
            )
        stores = _stores(warm is not None, None if archive is None else rewritten, blobs)
        for digest, stone in due.stones.items():
            dates = await self._ages.dates(stone.last_ms)
            await due.task.append_control(
                ErasureConfirmed(
                    partition=number,
                    number=stone.offset,
                    source=self._context.settings.owner,
                    run_digest=digest,
                    stores=stores,
                    gone_by_ms=self._gone_by_ms(gone_by_ms(dates), blobs),
                )
            )
            self._said[digest] = stone.offset
            self._context.metrics.count(metrics_erasing.ERASURES)
        log.info("runs erased", partition=number, runs=len(due.stones), **rewritten._asdict())

    async def _forget_blobs(self, due: Due) -> Forgetting | None:
        """Large values that no other run holds. What is too young for it is left to the sweep."""
        archive, number, sweeper = self._archive, due.task.number, self._blobs
        if archive is None or sweeper is None or not await sweeper.has_any(number):
            return None
        digests = await in_daemon_thread(
            lambda: blobs_named(archive, number, due.stones), f"erase-{number}"
        )
        return await sweeper.forget(number, due.task, digests) if digests else None

    def _gone_by_ms(self, logs_ms: int | None, blobs: Forgetting | None) -> int:
        if logs_ms is None or blobs is None or not blobs.left:
            return logs_ms or 0
        settings = self._context.settings.blobs
        # Seen by the next sweep, unheld for a grace, and deleted by the one after that.
        left_ms = 2 * (settings.grace_ms + settings.sweep_interval_ms)
        return max(logs_ms, _now_ms() + left_ms)

    async def _rewrite_again(self, task: PartitionTask) -> None:
        """Once more, a while after an erasure or a take-over: what was on its way to the archive
        then, from us or from who had the partition before, may have arrived since.
        """
        fold, archive, now_s = task.fold, self._archive, time.monotonic()
        if archive is None or not isinstance(fold, Partition) or task.state not in RUNNING:
            return
        since_ms = _now_ms() - _RECENT_MS
        recent = {
            digest: stone
            for digest, stone in fold.erasures
            if stone.number >= 0 and stone.erased_ms >= since_ms
        }
        known = self._again.get(task.number)
        if known is None or known.task is not task or not recent.keys() <= known.runs:
            self._again[task.number] = Again(task, frozenset(recent), now_s + _AGAIN_S)
        elif recent and now_s >= known.at_s:
            self._again[task.number] = known._replace(at_s=float("inf"))
            archived_to = fold.archived_to
            found = await in_daemon_thread(
                lambda: rewrite(archive, task.number, recent, archived_to),
                f"erase-{task.number}",
            )
            if found.segments:
                log.info("erased once more", partition=task.number, **found._asdict())

    async def _keep_moving(self, task: PartitionTask) -> None:
        """A compacted topic closes a file only when something is appended: until the date has
        passed the owner sees to it that something is.
        """
        fold = task.fold
        if not isinstance(fold, Partition) or not fold.erasures or task.state not in RUNNING:
            return
        last_ms = max(stone.last_ms for _, stone in fold.erasures)
        by_ms, rolls_ms = await self._ages.changelog(last_ms)
        now_s = time.monotonic()
        if rolls_ms >= FOREVER_MS or (by_ms < FOREVER_MS and _now_ms() > by_ms):
            return
        if now_s >= self._nudged_s.get(task.number, 0.0):
            self._nudged_s[task.number] = now_s + max(_NUDGE_MIN_S, rolls_ms / 2_000)
            await task.tick()

    async def _look_back(self, task: PartitionTask) -> None:
        """Once a date has passed: has every topic kept to it?"""
        fold, number, now_s = task.fold, task.number, time.monotonic()
        if not isinstance(fold, Partition) or now_s < self._asked_s.get(number, 0.0):
            return
        passed = [
            stone
            for _, stone in fold.erasures
            if 0 < stone.gone_by_ms < _now_ms() and stone.last_ms > self._gone.get(number, 0)
        ]
        if not passed:
            return
        self._asked_s[number] = now_s + _LOOK_BACK_S
        last_ms = max(stone.last_ms for stone in passed)
        held = await self._ages.held_before(number, min(stone.last_ms for stone in passed))
        self._overdue[number] = len(held)
        self._context.metrics.gauge(
            metrics_erasing.ERASURE_OVERDUE, len(held), partition=str(number)
        )
        if held:
            log.error("an erasure is overdue", partition=number, topics=held)
        else:
            self._gone[number] = last_ms

    async def _sweep(self) -> None:
        tier, now_s = self._context.warm, time.monotonic()
        if tier is None or now_s - self._swept_s < _SWEEP_S:
            return
        self._swept_s = now_s
        try:
            left = [str(path) for path in await in_daemon_thread(tier.sweep, "sweep-databases")]
        except OSError as error:
            left = [str(error)]  # a disk in trouble: what is to be erased elsewhere goes on
        for said in left:
            self._context.metrics.count(metrics_erasing.ERASURE_FAILURES, store="local database")
            log.error("an old database cannot be removed", path=said)

    def _failed(self, partition: int, store: str, error: Exception) -> bool:
        self._context.metrics.count(metrics_erasing.ERASURE_FAILURES, store=store)
        log.warning("not erased yet", partition=partition, store=store, error=str(error))
        return False


def _stores(
    warm: bool, archive: Rewritten | None, blobs: Forgetting | None
) -> tuple[ErasedFrom, ...]:
    found = [
        ErasedFrom(store="memory", detail="the run and what waited for it"),
        ErasedFrom(store="changelog", detail="every part is marked as deleted"),
    ]
    if warm:
        found.append(ErasedFrom(store="local database", detail="deleted and compacted"))
    if archive is not None:
        detail = f"records blanked in {archive.segments} segments"
        found.append(ErasedFrom(store="archive", removed=archive.records, detail=detail))
    if blobs is not None:
        detail = "large values that no other run holds"
        if blobs.left:
            detail += f"; {len(blobs.left)} more are young and go with a sweep, by the date"
        if blobs.held:
            detail += f"; {len(blobs.held)} stay, since other runs hold the same"
        found.append(ErasedFrom(store="blobs", removed=len(blobs.delete), detail=detail))
    return tuple(found)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
