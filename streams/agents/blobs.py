"""The sweeper of one engine: large values that no run of its partitions holds go after a grace.

The order, and why it is safe, is in `storage.blobs.sweep`. It takes the partitions in turn and
walks their runs in slices of a few milliseconds: intake waits for none of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from typing import Final, NamedTuple

import structlog

from dalsegno.storage.archive.archive import Archive
from dalsegno.storage.archive.objects import ArchiveError
from dalsegno.storage.blobs.store import BlobStore, Stored
from dalsegno.storage.blobs.sweep import Forgetting, Sweep, Unheld, forgetting
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.warm import WarmLost
from dalsegno.streams.engine import metrics_blobs
from dalsegno.streams.engine.daemon import in_daemon_thread
from dalsegno.streams.engine.ownership import Ownership
from dalsegno.streams.engine.task import RUNNING, PartitionTask

log = structlog.get_logger(__name__)

_LOOK_S: Final = 1.0
_CATCH_UP_S: Final = 60.0
"""How long a sweep waits until the fold has read what the log had when the blobs were listed."""
_SLICE_S: Final = 0.002
_REST_S: Final = 0.02
_IDS_AT_ONCE: Final = 200
_DELETIONS_MAX: Final = 5_000
"""Per partition and turn; the rest goes with the next one."""


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class _Found(NamedTuple):
    """A listing, the digests in it that runs hold, and when it began (Unix ms)."""

    listed: list[Stored]
    marked: set[bytes]
    now_ms: int


class SweepEndedError(Exception):
    """A sweep that was given up: nothing was deleted. `why` is a label."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


async def blob_sweeper(ownership: Ownership) -> None:
    """Sweep for as long as the engine runs; does nothing without a bucket."""
    context = ownership.context
    if context.blobs is None or context.objects is None:
        await asyncio.Event().wait()
        return
    archive = Archive(context.objects, context.settings.archive_prefix)
    await Sweeper(ownership, context.blobs, archive=archive).run()


class Sweeper:
    """Takes the partitions in turn."""

    def __init__(
        self,
        ownership: Ownership,
        store: BlobStore,
        now_ms: Callable[[], int] = _now_ms,
        *,
        archive: Archive | None = None,
    ) -> None:
        """`archive`: of the same prefix, to be asked whose blobs these are."""
        self._archive = archive
        self._ownership = ownership
        self._store = store
        self._now_ms = now_ms
        self._metrics = ownership.context.metrics
        self._interval_s = ownership.context.settings.blobs.sweep_interval_ms / 1_000
        self._unheld: dict[int, tuple[PartitionTask, Unheld]] = {}
        self._due_s: dict[int, float] = {}
        self._swept_s: dict[int, float] = {}
        """Of each partition: the last whole sweep, or when it was taken over."""
        self._found: dict[int, Sweep] = {}

    async def run(self) -> None:
        """For ever."""
        while True:
            await self.turn()
            await asyncio.sleep(_LOOK_S)

    async def turn(self) -> None:
        """Every partition that is due, one behind the other."""
        now_s = time.monotonic()
        tasks = dict(self._ownership.tasks)
        self._due_s = {n: self._due_s.get(n, now_s) for n in tasks}
        self._swept_s = {n: self._swept_s.get(n, now_s) for n in tasks}
        self._found = {n: found for n, found in self._found.items() if n in tasks}
        self._figures(now_s)
        for number, task in tasks.items():
            if now_s >= self._due_s[number] and task.state in RUNNING:
                await self._sweep(number, task)

    def _figures(self, now_s: float) -> None:
        """Of what is owned now: what has gone tells nothing any more."""
        stored, size = metrics_blobs.BLOB_STORED, metrics_blobs.BLOB_STORED_BYTES
        unheld, age = metrics_blobs.BLOB_UNHELD, metrics_blobs.BLOB_SWEEP_AGE
        for metric in (stored, size, unheld, age):
            self._metrics.clear(metric)
        for number, swept_s in self._swept_s.items():
            self._metrics.gauge(age, max(0.0, now_s - swept_s), partition=str(number))
        for number, found in self._found.items():
            label = {"partition": str(number)}
            self._metrics.gauge(stored, found.blobs, **label)
            self._metrics.gauge(size, found.bytes_stored, **label)
            self._metrics.gauge(unheld, found.unheld, **label)

    async def _sweep(self, number: int, task: PartitionTask) -> None:
        try:
            found = await self.sweep(number, task)
        except ArchiveError as error:
            self._failed(number, str(error.trouble), str(error))
        except SweepEndedError as error:
            self._failed(number, error.why, str(error))
        except WarmLost as error:
            self._failed(number, "local_database_lost", str(error))
        else:
            self._found[number] = found
            self._swept_s[number] = time.monotonic()
            self._figures(self._swept_s[number])
        # Also after a failure: nothing hurries, and a store in trouble has rest.
        self._due_s[number] = time.monotonic() + self._interval_s

    def _failed(self, number: int, trouble: str, why: str) -> None:
        self._metrics.count(metrics_blobs.BLOB_SWEEP_FAILURES, trouble=trouble)
        log.warning("blobs not swept", partition=number, why=why)

    async def sweep(self, number: int, task: PartitionTask) -> Sweep:
        """One partition, once. Raises `ArchiveError`, `SweepEndedError`, `WarmLost`."""
        began_s = time.monotonic()
        await self._see_whose(number, task)
        found = await self._look(number, task)
        judged = self._judge(number, task).judge(found.listed, found.marked, found.now_ms)
        log.info(
            "blobs marked", partition=number, blobs=judged.blobs, bytes=judged.bytes_stored,
            unheld=judged.unheld, took_s=round(time.monotonic() - began_s, 3),
        )  # fmt: skip
        await self._delete(number, judged)
        return judged

    async def _see_whose(self, number: int, task: PartitionTask) -> None:
        """Events are archived, and the log has confirmed none: they may be of a cluster that is
        gone, and so may the blobs be, which its runs still need.
        """
        archive, fold = self._archive, task.fold
        if archive is None or not isinstance(fold, Partition) or fold.archived_to:
            return
        first = await in_daemon_thread(lambda: next(archive.names(number), None), f"blobs-{number}")
        if first is not None:
            raise SweepEndedError("not_archived_yet")

    async def forget(
        self, number: int, task: PartitionTask, digests: Collection[bytes]
    ) -> Forgetting:
        """Delete the blobs of a run that was erased and has left the fold, as far as no other run
        holds them. `digests`: `Partition.references` of it, taken before. What is `left` goes by a
        call from `due_ms` on. Raises as `sweep`.
        """
        found = await self._look(number, task)
        grace_ms = self._store.grace_ms
        judged = forgetting(found.listed, digests, found.marked, found.now_ms, grace_ms)
        await self._remove(number, judged.delete)
        return judged

    async def has_any(self, number: int) -> bool:
        """Whether the store has any blob of the partition. Raises `ArchiveError`."""
        store = self._store
        first = await in_daemon_thread(lambda: next(store.stored(number), None), f"blobs-{number}")
        return first is not None

    async def _look(self, number: int, task: PartitionTask) -> _Found:
        store = self._store
        now_ms = self._now_ms()
        listed = await in_daemon_thread(lambda: list(store.stored(number)), f"blobs-{number}")
        if not listed:
            return _Found([], set(), now_ms)
        # The listing has ended: what the log holds by now has to be read first.
        fold = await self._caught_up(task, time.monotonic())
        return _Found(listed, await self._mark(task, fold, listed), now_ms)

    def _judge(self, number: int, task: PartitionTask) -> Unheld:
        known = self._unheld.get(number)
        if known is None or known[0] is not task:
            known = self._unheld[number] = (task, Unheld(self._store.grace_ms))
        return known[1]

    async def _caught_up(self, task: PartitionTask, since_s: float) -> Partition:
        """The fold, once it has read all that the log held at that time (monotonic)."""
        until_s = time.monotonic() + _CATCH_UP_S
        while task.state in RUNNING:
            now_s = time.monotonic()
            if now_s - task.behind_s(now_s) > since_s:
                fold = task.fold
                assert isinstance(fold, Partition)
                return fold
            if now_s > until_s:
                raise SweepEndedError("not_caught_up")
            await asyncio.sleep(_REST_S)
        raise SweepEndedError("partition_lost")

    async def _mark(
        self, task: PartitionTask, fold: Partition, listed: Sequence[Stored]
    ) -> set[bytes]:
        """Digests that runs hold. A run that comes, goes or moves meanwhile is seen all the same:
        those in memory are looked up by name wherever they are then, and after them all that the
        local database has.
        """
        wanted = {each.digest for each in listed}
        marked: set[bytes] = set()
        slice_end_s = time.monotonic() + _SLICE_S
        async for run_ids in _all_ids(fold):
            for run_id in run_ids:
                marked |= fold.references(run_id) & wanted
                if time.monotonic() >= slice_end_s:
                    await asyncio.sleep(_REST_S)
                    if task.state not in RUNNING:
                        raise SweepEndedError("partition_lost")
                    slice_end_s = time.monotonic() + _SLICE_S
        return marked

    async def _delete(self, number: int, judged: Sweep) -> None:
        store = self._store
        unheld = judged.delete[:_DELETIONS_MAX]
        # The older generation goes only while the newer one is seen to be whole.
        replaced = [
            old
            for old, new in judged.replaced[:_DELETIONS_MAX]
            if await in_daemon_thread(lambda new=new: store.whole(new), f"blobs-{number}")  # type: ignore[misc]
        ]
        await self._remove(number, [*unheld, *replaced])

    async def _remove(self, number: int, going: Sequence[Stored]) -> None:
        store = self._store
        if not going:
            return
        failed = await in_daemon_thread(lambda: store.delete(going), f"blobs-{number}")
        self._metrics.count(metrics_blobs.BLOB_SWEPT, len(going) - len(failed))
        log.info("blobs swept", partition=number, deleted=len(going) - len(failed))
        for error in failed.values():
            raise error


async def _all_ids(fold: Partition) -> AsyncIterator[Iterable[str]]:
    held = list(fold.held_ids())
    for first in range(0, len(held), _IDS_AT_ONCE):
        yield held[first : first + _IDS_AT_ONCE]
    residence = fold.residence
    after = ""
    while residence is not None and (page := residence.warm.ids(after, _IDS_AT_ONCE)):
        after = page[-1]
        yield page
