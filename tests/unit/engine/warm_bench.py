"""Partitions with a store that can be told to fail, for tests of the warm tier."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from benchmarks.engine_lab.load import run_events
from tests.contract.faulty_tables import FaultyTable

from dalsegno.storage.memory import MemoryTable
from dalsegno.storage.rocksdb import RocksMemory
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.record import Record
from dalsegno.streams.core.warm import WarmLost
from dalsegno.streams.engine import metrics_warm
from dalsegno.streams.engine.metric import Metric
from dalsegno.streams.engine.metrics import EngineMetrics
from dalsegno.streams.engine.settings import EngineSettings
from dalsegno.streams.engine.warm_partition import WarmPartition
from dalsegno.streams.engine.warm_tier import Changelog, WarmTier

HOUR_MS = 3_600_000


class Disk:
    """Tables that stay when a store is closed, as files do."""

    def __init__(self) -> None:
        self.tables: dict[Path, FaultyTable] = {}

    def __call__(self, path: Path, memory: RocksMemory) -> FaultyTable:
        old = self.tables.get(path)
        held = MemoryTable() if old is None else old.table.after_crash()  # type: ignore[attr-defined]
        self.tables[path] = FaultyTable(held)
        return self.tables[path]

    @property
    def newest(self) -> FaultyTable:
        return list(self.tables.values())[-1]


def make_tier(folder: Path, disk: Disk, memory_bytes: int = 1 << 16) -> WarmTier:
    settings = EngineSettings(data_dir=str(folder), memory_bytes=memory_bytes)
    changelog = Changelog("cluster/topic/id", 24 * HOUR_MS)
    return WarmTier(settings, changelog, EngineMetrics(), table=disk)


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def tier(tmp_path: Path, disk: Disk) -> Iterator[WarmTier]:
    made = make_tier(tmp_path, disk)
    yield made
    made.close()


def wiped(tier: WarmTier) -> dict[str, float]:
    found = tier.metrics.registry.collect()
    return {
        sample.labels["reason"]: sample.value
        for metric in found
        for sample in metric.samples
        if sample.name == metrics_warm.WARM_WIPED.name
    }


def gauge(tier: WarmTier, metric: Metric) -> float | None:
    return tier.metrics.registry.get_sample_value(metric.name)


class Bench:
    """A partition with a store that can be told to fail, and its owner's part."""

    def __init__(self, tier: WarmTier, disk: Disk, number: int = 0) -> None:
        store = tier.open(number)
        self.table = disk.newest
        self.partition = Partition.open(number, store)
        residence = self.partition.residence
        assert residence is not None
        self.residence = residence
        self.lost: list[WarmLost] = []
        self.moves = 0
        self.warm = WarmPartition(
            tier, number, store, self.partition, self.lost.append, moved=self.moved
        )
        self.offset = 0

    def moved(self) -> None:
        self.moves += 1

    def runs(self, first: int, count: int, events: int = 3) -> None:
        for number in range(first, first + count):
            for _, event in zip(range(events), run_events(f"r{number:04d}"), strict=False):
                self.partition.apply(Record(self.offset, 1_700_000_000_000, b"", b"", event))
                self.offset += 1

    def checkpoint(self) -> None:
        self.warm.captured()
        self.warm.keep(self.partition.capture(), self.offset)

    async def until(self, wanted: Callable[[], object]) -> None:
        for _ in range(6_000):
            if wanted():
                return
            await asyncio.sleep(0.01)
        raise AssertionError("not in time")
