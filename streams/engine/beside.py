"""What stands beside a partition's memory: a database, none for want of one, or nothing at all."""

from __future__ import annotations

from collections.abc import Callable

from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.warm import WarmLost
from dalsegno.streams.engine.batch import Batch
from dalsegno.streams.engine.errors import EngineError, OutcomeUnknownError
from dalsegno.streams.engine.memory_alone import MemoryAlone
from dalsegno.streams.engine.opening import Opened
from dalsegno.streams.engine.warm_partition import WarmPartition
from dalsegno.streams.engine.warm_tier import WarmTier

Beside = WarmPartition | MemoryAlone


def open_side(
    tier: WarmTier | None,
    number: int,
    opened: Opened,
    fail: Callable[[EngineError], None],
    moved: Callable[[], None],
) -> Beside | None:
    """For a partition of an engine with a data folder; None without one."""
    fold, store = opened.fold, opened.store
    if tier is None or not isinstance(fold, Partition):
        return None

    def lost(error: WarmLost) -> None:
        fail(OutcomeUnknownError(f"local database: {error}"))

    if store is None:
        return MemoryAlone(tier, opened.sizes, again=lost, moved=moved)
    return WarmPartition(tier, number, store, fold, lost, moved=moved)


def ahead(beside: Beside | None, batch: Batch, then: Callable[[], None]) -> None:
    """Calls `then` once the runs that the batch touches are in memory, as they all are without a
    store.
    """
    if beside is None:
        then()
    else:
        beside.ahead(batch, then)


def folded(beside: Beside | None, events: int, took_s: float) -> None:
    """The fold applied so many events in this time."""
    if isinstance(beside, WarmPartition) and beside.snapshots is not None:
        beside.snapshots.pace.folded(events, took_s)


def unread(beside: Beside | None, error: WarmLost) -> None:
    """What cannot be read back ends the partition task, and no more than that; one that has been
    closed meanwhile has ended.
    """
    if beside is not None:
        beside.lost(error)


def full(beside: Beside | None) -> bool:
    """Whether memory is over its hard bound; never without a data folder."""
    return beside is not None and beside.full()
