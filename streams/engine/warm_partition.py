"""The store of one partition while it runs: what it reads ahead, and what checkpoints put in it.

The store follows the changelog, never leads: a checkpoint is put in once it is committed, beside
the loop. A write that is put off or fails is tried again with what has come meanwhile; until then
what it holds stays in memory, so nothing is lost and nothing waits for the disk. One that fails as
no store is known to is tried a few times; then the partition begins anew, from the changelog.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import structlog

from dalsegno.storage.errors import StoreBusyError, StoreError, StoreFullError, StoreLostError
from dalsegno.storage.ports import TableStat
from dalsegno.storage.warm import Place, WarmStore
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.versions import VersionView
from dalsegno.streams.core.warm import PackedRun, WarmLost
from dalsegno.streams.engine import metrics_warm
from dalsegno.streams.engine.batch import Batch
from dalsegno.streams.engine.warm_snapshots import SHARE, Snapshots
from dalsegno.streams.engine.warm_tier import WarmTier, now_ms

log = structlog.get_logger(__name__)

_BUSY_S: Final = 0.05
_FULL_FIRST_S: Final = 0.2
_FULL_MAX_S: Final = 10.0
_TRIES_MAX: Final = 5
"""Writes in a row that may raise what no store is known to raise."""

_RECOVERS_S: Final = 10.0
"""A database that was refused by its disk goes on by itself within this time, or never."""

Parts = Sequence[tuple[bytes, bytes | None]]


class WarmPartition:
    """`lost` is called once, when the store cannot be used any more; `moved` when runs left."""

    def __init__(
        self,
        tier: WarmTier,
        number: int,
        store: WarmStore,
        fold: Partition,
        lost: Callable[[WarmLost], None],
        *,
        moved: Callable[[], None] = lambda: None,
    ) -> None:
        self._tier = tier
        self._number = number
        self._store = store
        assert fold.residence is not None, "opened with a store"
        self._fold = fold
        self._residence = residence = fold.residence
        self._batch_end = 0
        self._turn = 0
        self._told_lost = lost
        self.moved = moved
        self._fetching: asyncio.Task[None] | None = None
        self._pending: dict[bytes, bytes | None] = {}
        self._pending_bytes = 0
        self._disk_well_at: float | None = None
        self._place = store.place or Place(0, 0)
        self._number_pending = 0
        self._captured_ms = 0
        self._writer: asyncio.Task[None] | None = None
        self._flushed_at = time.monotonic()
        self._late = 0
        self._condemned = False
        self._closing = asyncio.Event()
        self._more = asyncio.Event()
        self._turn_at_s = 0.0
        self._putting = False
        self.snapshots: Snapshots | None = None
        if tier.settings.snapshots:
            self.snapshots = Snapshots(
                tier.settings, store, fold.versions, tier.metrics, bytes_max=tier.notes_max
            )
        residence.stored(0, tier.stamp())
        tier.sides.add(self)

    @property
    def bytes_held(self) -> int:
        """What its runs in memory take."""
        return self._residence.bytes_held

    @property
    def bytes_waiting(self) -> int:
        """What waits in memory to be put in, as keys and values, where a part may count twice; and
        what the snapshots have noted.
        """
        notes = 0 if self.snapshots is None else self.snapshots.bytes_held
        return self._pending_bytes + notes

    @property
    def oldest(self) -> int | None:
        """When the run was touched that has not been for longest; None without one."""
        return self._residence.oldest

    def full(self) -> bool:
        """Whether nothing more may be taken, by all partitions of the engine."""
        return self._tier.full()

    @property
    def outside(self) -> int:
        """Runs and stubs that are not in memory."""
        return self._residence.outside

    def stat(self) -> TableStat:
        """How the database is; nothing once it is closed."""
        if self._closing.is_set():
            return TableStat()
        try:
            return self._store.stat()
        except StoreLostError as error:
            self.lost(error)
            return TableStat()

    async def version(self, run_id: str, run_version: int) -> VersionView | None:
        """A live run at one of its versions, if that is kept. Raises `WarmLost`."""
        if self.snapshots is None or self._closing.is_set():
            return None
        return await self.snapshots.look(run_id, run_version, self._tier.readers)

    @property
    def unsaved(self) -> int:
        """Parts that wait to be put in."""
        return len(self._pending)

    def leave(self, bytes_wanted: int, until: int) -> int:
        """Lets runs leave that were touched by then. How many did."""
        if self._fold.position >= self._batch_end:
            self._residence.release()
        return self._residence.leave(bytes_wanted, until)

    def _missing(self, batch: Batch) -> list[str]:
        """Runs that the batch touches and that are not in memory."""
        if not batch.records or not self._residence.outside:
            return []
        keys = {record.key for record in batch.records if record.key}
        names = [key.decode("utf-8", "replace") for key in keys]
        missing = self._residence.missing(names, max(r.timestamp for r in batch.records))
        self._tier.metrics.count(metrics_warm.WARM_TOUCHED, len(names))
        self._tier.metrics.count(metrics_warm.WARM_MISSING, len(missing))
        return missing

    def ahead(self, batch: Batch, then: Callable[[], None]) -> None:
        """Calls `then` once the runs that the batch touches are in memory: at once, or when they
        have been read. Nothing may be applied meanwhile.
        """
        self._batch_end = batch.next_position
        self._turn += 1
        try:
            missing = self._missing(batch)
        except WarmLost as error:
            self.lost(error)
            return
        if missing:
            self._fetching = asyncio.create_task(self._fetch(missing, self._turn, then))
        else:
            then()

    async def _fetch(self, run_ids: list[str], turn: int, then: Callable[[], None]) -> None:
        try:
            found = await self._read(run_ids)
            # Another batch has begun meanwhile: what was read may have changed since.
            if turn != self._turn:
                return
            self._residence.offer(run_ids, found)
        except WarmLost as error:
            self.lost(error)
        except Exception as error:
            # A full disk, for one: the batch would wait for ever, and nobody hear of it.
            log.exception("runs not read", partition=self._number)
            self._told_lost(StoreLostError(f"runs were not read: {error}"))
        else:
            then()

    async def _read(self, run_ids: list[str]) -> dict[str, PackedRun]:
        """Together, and beside the loop."""
        began = time.monotonic()
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._tier.readers, self._store.load, run_ids)
        self._tier.metrics.observe(metrics_warm.WARM_READ, time.monotonic() - began)
        return found

    def captured(self) -> None:
        """A checkpoint is captured: what it says was all there was now."""
        self._captured_ms = now_ms()
        if self.snapshots is not None:
            self.snapshots.captured()

    def keep(self, parts: Parts, position: int | None) -> None:
        """A checkpoint is committed; `position` is behind it in the changelog, None if unknown."""
        self._pending.update(parts)
        self._pending_bytes += _size(parts)
        self._number_pending = self._residence.captures
        if position is not None:
            self._place = Place(position, self._captured_ms)
        late = self._residence.late
        self._tier.metrics.count(metrics_warm.WARM_LATE, late - self._late)
        self._late = late
        if self.snapshots is not None:
            self.snapshots.committed()
        self._more.set()
        if self._writer is None and not self._closing.is_set():
            self._writer = asyncio.create_task(self._write())

    async def _write(self) -> None:
        wait_s, raised = _FULL_FIRST_S, 0
        try:
            while self._work() and not self._closing.is_set():
                try:
                    if self._pending:
                        await self._put()
                    await self._snap()
                    wait_s, raised, self._disk_well_at = _FULL_FIRST_S, 0, None
                except StoreBusyError:
                    self._tier.metrics.count(metrics_warm.WARM_STALLS)
                    await self._pause(_BUSY_S)
                except StoreFullError as error:
                    self._tier.metrics.count(metrics_warm.WARM_WRITE_FAILURES)
                    log.warning("not stored", partition=self._number, error=str(error))
                    if await self._refuses_for_good():
                        self._told_lost(
                            StoreLostError(f"it takes no write, though the disk does: {error}")
                        )
                        return
                    await self._pause(wait_s)
                    wait_s = min(_FULL_MAX_S, 2 * wait_s)
                except StoreLostError:
                    raise
                except Exception as error:
                    raised += 1
                    self._tier.metrics.count(metrics_warm.WARM_WRITE_FAILURES)
                    log.exception("not stored", partition=self._number, tries=raised)
                    if raised == _TRIES_MAX:
                        # What came with this owner may be what it fails on: the next reads anew.
                        self._told_lost(StoreLostError(f"it was not written: {error!r}"))
                        return
                    await self._pause(wait_s)
                    wait_s = min(_FULL_MAX_S, 2 * wait_s)
        except StoreLostError as error:
            self.lost(error)
        finally:
            self._writer = None

    def _work(self) -> bool:
        return bool(self._pending) or (self.snapshots is not None and self.snapshots.due)

    async def _snap(self) -> None:
        """A turn at the snapshot chains, unless the last one was a moment ago: all partitions
        together spend `SHARE` of the time on them. Waits for the next turn when there is nothing to
        put meanwhile.
        """
        snapshots, now_s = self.snapshots, time.monotonic()
        if snapshots is None or not snapshots.due:
            return
        if now_s < self._turn_at_s:
            self._more.clear()
            if not self._pending and not self._closing.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._turn_at_s - now_s):
                        await self._more.wait()
            return
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._tier.writers, snapshots.write)
        finally:
            snapshots.tell()
        took_s = time.monotonic() - now_s
        self._turn_at_s = now_s + took_s * len(self._tier.sides) / SHARE

    async def _put(self) -> None:
        loop, began = asyncio.get_running_loop(), time.monotonic()
        parts, self._pending = self._pending, {}
        place, number = self._place, self._number_pending
        self._pending_bytes = _size(parts.items())
        if self.snapshots is not None:
            self.snapshots.take()
        self._putting = True
        try:
            await loop.run_in_executor(self._tier.writers, self._store.put, parts, place)
            if began - self._flushed_at >= self._tier.flush_s:
                self._flushed_at = began
                await loop.run_in_executor(self._tier.writers, self._store.flush)
        except BaseException:
            self._pending = {**parts, **self._pending}
            raise
        finally:
            self._putting = False
            self._pending_bytes = _size(self._pending.items())
        self._tier.metrics.observe(metrics_warm.WARM_WRITE, time.monotonic() - began)
        self._residence.stored(number, self._tier.stamp())
        self._tier.balance()
        if self.snapshots is not None:
            self.snapshots.stored(parts)

    async def _refuses_for_good(self) -> bool:
        """Whether the disk is well again and the database still takes nothing, as after an error
        other than a lack of space: then only opening it anew helps.
        """
        loop = asyncio.get_running_loop()
        if not await loop.run_in_executor(self._tier.writers, self._tier.disk_takes):
            self._disk_well_at = None
            return False
        now_s = time.monotonic()
        if self._disk_well_at is None:
            self._disk_well_at = now_s
        return now_s - self._disk_well_at >= _RECOVERS_S

    async def forget(self) -> bool:
        """What the fold has removed, and a checkpoint has said, leaves the files of the store too.
        False while not all of it has been put in, or when the store cannot do it now.
        """
        if self._pending or self._putting or self._closing.is_set():
            return False
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._tier.writers, self._store.compact)
        except StoreLostError as error:
            self.lost(error)
            return False
        except StoreError as error:
            log.warning("store not compacted", partition=self._number, error=str(error))
            return False
        return True

    async def _pause(self, wait_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._closing.wait()

    def lost(self, error: WarmLost) -> None:
        """What it holds cannot be believed: it is thrown away when it is closed."""
        self._condemned = True
        self._told_lost(error)

    async def close(self) -> None:
        """Nothing of it is used any more."""
        self._closing.set()
        self._more.set()
        self._tier.sides.discard(self)
        self._tier.balance()
        jobs = {self._writer, self._fetching} - {None, asyncio.current_task()}
        if jobs:
            await asyncio.wait([job for job in jobs if job is not None])
        await asyncio.to_thread(self._end)
        if self.snapshots is not None:
            self.snapshots.tell()

    def _finish(self) -> None:
        snapshots, parts = self.snapshots, self._pending
        if snapshots is not None:
            snapshots.take()
        if parts:
            self._store.put(parts, self._place)
        if snapshots is not None:
            snapshots.stored(parts)
            snapshots.finish()

    def _end(self) -> None:
        try:
            if not self._condemned:
                self._finish()
        except StoreError as error:
            log.info("store left behind", partition=self._number, error=str(error))
        except Exception:
            # What ended the partition may be met again here; its end is enough.
            log.exception("store left behind", partition=self._number)
        finally:
            self._tier.close_store(self._number, self._store, condemned=self._condemned)


def _size(parts: Iterable[tuple[bytes, bytes | None]]) -> int:
    return sum(len(key) + len(value or b"") for key, value in parts)
