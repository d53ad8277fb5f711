"""The local databases of one engine: where they are, which are open, and the budget of them all."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import structlog
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource

from dalsegno.storage.errors import StoreError, StoreFullError, StoreLostError
from dalsegno.storage.folder import EngineFolder
from dalsegno.storage.ports import Table
from dalsegno.storage.rocksdb import RocksMemory, RocksTable
from dalsegno.storage.snapshots.recorder import NOTES_BYTES_MAX
from dalsegno.storage.warm import WarmStore
from dalsegno.streams.engine import metrics_warm
from dalsegno.streams.engine.metrics import EngineMetrics
from dalsegno.streams.engine.security import librdkafka_options
from dalsegno.streams.engine.settings import EngineSettings

log = structlog.get_logger(__name__)

_TIMEOUT_S: Final = 10.0
_CLOSING_S: Final = 5.0
"""How long a partition that comes back waits for its database to be closed."""

_LOOK_S: Final = 1.0
_PROBE_BYTES: Final = 1 << 20
_READERS: Final = 4
_WRITERS: Final = 2
_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Changelog:
    """Which changelog the databases follow, for how long it keeps what was deleted, and how many
    partitions there are.
    """

    identity: str
    tombstones_ms: int
    partitions: int = 1


def look(settings: EngineSettings) -> Changelog:
    """Ask the brokers. Blocks; raises `KafkaException`."""
    client = AdminClient(librdkafka_options(settings))
    topic = settings.topics.runs_changelog
    cluster = client.list_topics(topic, timeout=_TIMEOUT_S).cluster_id
    found = client.describe_topics(TopicCollection([topic]), request_timeout=_TIMEOUT_S)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    asked = client.describe_configs([resource], request_timeout=_TIMEOUT_S)
    kept = asked[resource].result(_TIMEOUT_S).get("delete.retention.ms")
    described = found[topic].result(_TIMEOUT_S)
    return Changelog(
        f"{cluster}/{topic}/{described.topic_id}",
        int(kept.value) if kept is not None else _DAY_MS,
        len(described.partitions),
    )


class Side(Protocol):
    """A partition as the budget sees it."""

    @property
    def bytes_held(self) -> int:
        """What its runs in memory take."""

    @property
    def bytes_waiting(self) -> int:
        """What waits in memory to be put in its store, notes for snapshots with it."""

    @property
    def oldest(self) -> int | None:
        """When the run was touched that has not been for longest; None without one."""

    def leave(self, bytes_wanted: int, until: int) -> int:
        """Lets runs leave that were touched by then. How many did."""

    def moved(self) -> None:
        """Something left memory: go on, if that was waited for."""


class WarmTier:
    """Opened once per engine, closed after its last partition. `sides` are on the event loop;
    stores are opened and closed in threads.

    There are two bounds. Over the budget, runs leave memory. Where they cannot, since the disk
    takes nothing, memory grows to the hard bound: then no partition takes events until it shrinks.
    """

    def __init__(
        self,
        settings: EngineSettings,
        changelog: Changelog,
        metrics: EngineMetrics,
        *,
        table: Callable[[Path, RocksMemory], Table] = RocksTable,
    ) -> None:
        """Takes a folder. Raises `StoreFullError`."""
        self.changelog = changelog
        self.flush_s = settings.warm_flush_ms / 1_000
        self.metrics = metrics
        self.settings = settings
        self.readers = ThreadPoolExecutor(_READERS, thread_name_prefix="warm-read")
        self.writers = ThreadPoolExecutor(_WRITERS, thread_name_prefix="warm-write")
        self.sides: set[Side] = set()
        self._budget = settings.memory_bytes
        self._bound = settings.memory_bound
        self._full = False
        self._look: asyncio.TimerHandle | None = None
        self._table = table
        self._folder = EngineFolder.take(Path(settings.data_dir))
        self._memory = RocksMemory(settings.warm_cache_bytes, settings.warm_buffer_bytes)
        self._stamps = itertools.count(1)
        self._in_use: set[int] = set()
        self._closed = threading.Condition()

    @property
    def path(self) -> Path:
        """The folder of this engine."""
        return self._folder.path

    def open(self, partition: int) -> WarmStore:
        """The partition's store, emptied if it cannot be used. Blocks. Raises `StoreError` if no
        other can be made.
        """
        with self._closed:
            in_time = self._closed.wait_for(lambda: partition not in self._in_use, _CLOSING_S)
            self._in_use.add(partition)
        try:
            if not in_time:
                log.warning("old database still open, another is made", partition=partition)
                return self._made(partition, self._folder.another(partition))
            try:
                return self._made(partition, self._folder.partition(partition))
            except StoreLostError as error:
                return self.wipe(partition, None, "damaged", str(error))
        except BaseException:
            self._let_go(partition)
            raise

    def _made(self, partition: int, path: Path) -> WarmStore:
        table = self._table(path, self._memory)
        try:
            return WarmStore(table, f"{self.changelog.identity}/{partition}")
        except StoreLostError:
            _close(partition, table)
            raise

    def wipe(self, partition: int, store: WarmStore | None, reason: str, why: str) -> WarmStore:
        """An empty store in the place of one that cannot be used. Raises `StoreError`."""
        log.warning("database thrown away", partition=partition, reason=reason, why=why)
        self.metrics.count(metrics_warm.WARM_WIPED, reason=reason)
        if store is not None:
            _close(partition, store)
        return self._made(partition, self._folder.another(partition))

    def close_store(self, partition: int, store: WarmStore, *, condemned: bool = False) -> None:
        """Let go of a store. Blocks while it is flushed. `condemned`: it must not be used again."""
        try:
            _close(partition, store)
            if condemned:
                self._folder.another(partition)
        finally:
            self._let_go(partition)

    def _let_go(self, partition: int) -> None:
        with self._closed:
            self._in_use.discard(partition)
            self._closed.notify_all()

    def too_old_ms(self) -> int:
        """Stores that were last caught up before this time are no longer sure (Unix ms)."""
        return now_ms() - self.changelog.tombstones_ms // 2

    def sweep(self) -> list[Path]:
        """Removes databases of partitions that others have, once they are too old to be believed:
        what was erased since may still be in them. Those that cannot be removed. Blocks.
        """
        with self._closed:
            moved = self._folder.set_aside(self._in_use, self.too_old_ms() / 1_000)
        # Nobody waits for this: a partition that is opened meanwhile has another folder.
        left = self._folder.remove_aside()
        for partition in moved:
            log.info("old database out of use", partition=partition)
        return left

    def stamp(self) -> int:
        """A later date than all before."""
        return next(self._stamps)

    def full(self) -> bool:
        """Whether memory is over its hard bound: nothing more may be taken. Who was told so hears
        `moved` when something left.
        """
        full = self.room() < 0
        if full != self._full:
            self._full = full
            self.metrics.gauge(metrics_warm.MEMORY_FULL, int(full))
            log.warning("memory full" if full else "memory free again", bytes_max=self._bound)
        if full and self._look is None:
            self._look = asyncio.get_running_loop().call_later(_LOOK_S, self._look_again)
        return full

    @property
    def notes_max(self) -> int:
        """What the snapshots of one partition may note in memory: if this engine has all partitions
        half of what is between budget and bound, so that notes alone never hold anything up.
        """
        between = max(0, self._bound - self._budget)
        return min(NOTES_BYTES_MAX, between // 2 // max(1, self.changelog.partitions))

    def room(self) -> int:
        """Bytes that memory may still take until it is at its hard bound; negative beyond it."""
        return self._bound - sum(side.bytes_held + side.bytes_waiting for side in self.sides)

    def _look_again(self) -> None:
        self._look = None
        self.balance()

    def disk_takes(self) -> bool:
        """Whether a file can be written in the folder. Blocks."""
        path = self.path / "probe"
        try:
            with path.open("wb") as file:
                file.write(bytes(_PROBE_BYTES))
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            return False
        finally:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        return True

    def balance(self) -> None:
        """Lets runs leave memory, longest untouched first, until the budget is kept."""
        self._let_leave()
        for side in list(self.sides):
            side.moved()

    def _let_leave(self) -> None:
        over = sum(side.bytes_held for side in self.sides) - self._budget
        stuck: set[Side] = set()
        while over > 0:
            ages = sorted(
                (
                    (oldest, id(side), side)
                    for side in self.sides - stuck
                    if (oldest := side.oldest) is not None
                ),
            )
            if not ages:
                return
            _, _, side = ages[0]
            until = ages[1][0] if len(ages) > 1 else 1 << 62
            before = side.bytes_held
            left = side.leave(over, until)
            over -= before - side.bytes_held
            self.metrics.count(metrics_warm.WARM_LEFT, left)
            if not left:
                stuck.add(side)

    def close(self) -> None:
        """Give the folder back. Blocks until what still runs has ended."""
        self.readers.shutdown()
        self.writers.shutdown()
        self._folder.release()


def _close(partition: int, held: Table | WarmStore) -> None:
    try:
        held.close()
    except StoreError as error:
        # Nothing is lost: the changelog has it, and is read from further back.
        log.warning("database not flushed", partition=partition, error=str(error))


def now_ms() -> int:
    """This machine's clock, Unix ms: a store is compared with itself, on the same machine."""
    return time.time_ns() // 1_000_000


def open_tier(settings: EngineSettings, metrics: EngineMetrics) -> WarmTier | None:
    """The engine's databases, or None without a data folder. Blocks; raises `KafkaException`,
    `StoreFullError`.
    """
    return WarmTier(settings, look(settings), metrics) if settings.data_dir else None


__all__ = ["Changelog", "Side", "StoreFullError", "WarmTier", "look", "now_ms", "open_tier"]
