"""The store of one partition while it runs: what it reads ahead, and what checkpoints put in it.

The store follows the changelog, never leads: a checkpoint is put in once it is committed, beside
the loop. A write that is put off or fails is tried again with what has come meanwhile; until then
what it holds stays in memory, so nothing is lost and nothing waits for the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from dalsegno.storage.errors import StoreBusyError, StoreError, StoreFullError, StoreLostError
from dalsegno.storage.ports import TableStat
from dalsegno.storage.warm import Place, WarmStore
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.warm import PackedRun, WarmLost
from dalsegno.streams.engine import metrics_warm
from dalsegno.streams.engine.batch import Batch
from dalsegno.streams.engine.errors import EngineError, OutcomeUnknownError
from dalsegno.streams.engine.opening import Opened
from dalsegno.streams.engine.warm_tier import WarmTier, now_ms

log = structlog.get_logger(__name__)

_BUSY_S: Final = 0.05
_FULL_FIRST_S: Final = 0.2
_FULL_MAX_S: Final = 10.0

Parts = Sequence[tuple[bytes, bytes | None]]


class WarmPartition:
    """`lost` is called once, when the store cannot be believed any more."""

    def __init__(
        self,
        tier: WarmTier,
        number: int,
        store: WarmStore,
        fold: Partition,
        lost: Callable[[WarmLost], None],
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
        self._fetching: asyncio.Task[None] | None = None
        self._pending: dict[bytes, bytes | None] = {}
        self._place = store.place or Place(0, 0)
        self._number_pending = 0
        self._captured_ms = 0
        self._writer: asyncio.Task[None] | None = None
        self._flushed_at = time.monotonic()
        self._late = 0
        self._condemned = False
        self._closing = asyncio.Event()
        residence.stored(0, tier.stamp())
        tier.sides.add(self)

    @property
    def bytes_held(self) -> int:
        """What its runs in memory take."""
        return self._residence.bytes_held

    @property
    def oldest(self) -> int | None:
        """When the run was touched that has not been for longest; None without one."""
        return self._residence.oldest

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
        except WarmLost as error:
            self.lost(error)
            return
        # Another batch has begun meanwhile: what was read may have changed since.
        if turn == self._turn:
            self._residence.offer(run_ids, found)
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

    def keep(self, parts: Parts, position: int | None) -> None:
        """A checkpoint is committed; `position` is behind it in the changelog, None if unknown."""
        self._pending.update(parts)
        self._number_pending = self._residence.captures
        if position is not None:
            self._place = Place(position, self._captured_ms)
        late = self._residence.late
        self._tier.metrics.count(metrics_warm.WARM_LATE, late - self._late)
        self._late = late
        if self._writer is None and not self._closing.is_set():
            self._writer = asyncio.create_task(self._write())

    async def _write(self) -> None:
        wait_s = _FULL_FIRST_S
        try:
            while self._pending and not self._closing.is_set():
                try:
                    await self._put()
                    wait_s = _FULL_FIRST_S
                except StoreBusyError:
                    self._tier.metrics.count(metrics_warm.WARM_STALLS)
                    await self._pause(_BUSY_S)
                except StoreFullError as error:
                    self._tier.metrics.count(metrics_warm.WARM_WRITE_FAILURES)
                    log.warning("not stored", partition=self._number, error=str(error))
                    await self._pause(wait_s)
                    wait_s = min(_FULL_MAX_S, 2 * wait_s)
        except StoreLostError as error:
            self.lost(error)
        finally:
            self._writer = None

    async def _put(self) -> None:
        loop, began = asyncio.get_running_loop(), time.monotonic()
        parts, self._pending = self._pending, {}
        place, number = self._place, self._number_pending
        try:
            await loop.run_in_executor(self._tier.writers, self._store.put, parts, place)
            if began - self._flushed_at >= self._tier.flush_s:
                self._flushed_at = began
                await loop.run_in_executor(self._tier.writers, self._store.flush)
        except BaseException:
            self._pending = {**parts, **self._pending}
            raise
        self._tier.metrics.observe(metrics_warm.WARM_WRITE, time.monotonic() - began)
        self._residence.stored(number, self._tier.stamp())
        self._tier.balance()

    async def _pause(self, wait_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), wait_s)

    def lost(self, error: WarmLost) -> None:
        """What it holds cannot be believed: it is thrown away when it is closed."""
        self._condemned = True
        self._told_lost(error)

    async def close(self) -> None:
        """Nothing of it is used any more."""
        self._closing.set()
        self._tier.sides.discard(self)
        jobs = {self._writer, self._fetching} - {None, asyncio.current_task()}
        if jobs:
            await asyncio.wait([job for job in jobs if job is not None])
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        try:
            if self._pending and not self._condemned:
                self._store.put(self._pending, self._place)
        except StoreError as error:
            log.info("store left behind", partition=self._number, error=str(error))
        self._tier.close_store(self._number, self._store, condemned=self._condemned)


def ahead(warm: WarmPartition | None, batch: Batch, then: Callable[[], None]) -> None:
    """Calls `then` once the runs that the batch touches are in memory, as they all are without a
    store.
    """
    if warm is None:
        then()
    else:
        warm.ahead(batch, then)


def unread(warm: WarmPartition | None, error: WarmLost) -> None:
    """What cannot be read back ends the partition task, and no more than that."""
    assert warm is not None, "only a store can be lost"
    warm.lost(error)


def open_side(
    tier: WarmTier | None, number: int, opened: Opened, fail: Callable[[EngineError], None]
) -> WarmPartition | None:
    """For a partition that was opened with a store; None for one that is all in memory."""
    fold, store = opened.fold, opened.store
    if tier is None or store is None or not isinstance(fold, Partition):
        return None

    def lost(error: WarmLost) -> None:
        fail(OutcomeUnknownError(f"local database: {error}"))

    return WarmPartition(tier, number, store, fold, lost)
