"""A disk that takes nothing: memory grows to its hard bound, and then nothing more is taken."""

from __future__ import annotations

import pytest
from tests.unit.engine.warm_bench import Bench, Disk, disk, gauge, tier, wiped

from dalsegno.storage.errors import StoreFullError
from dalsegno.streams.core.warm import WarmLost
from dalsegno.streams.engine import metrics_warm
from dalsegno.streams.engine.memory_alone import MemoryAlone
from dalsegno.streams.engine.sinks import UNPACKED, PartsSink
from dalsegno.streams.engine.warm_tier import WarmTier

__all__ = ["disk", "tier"]


async def test_memory_over_its_hard_bound_holds_every_partition_until_the_disk_takes_again(
    tier: WarmTier, disk: Disk
) -> None:
    full, other = Bench(tier, disk, 0), Bench(tier, disk, 1)
    full.table.full = 1 << 30
    full.runs(0, 20)
    full.checkpoint()
    assert not other.warm.full(), "over the budget, below the bound"
    full.runs(20, 200)
    full.checkpoint()
    assert full.warm.full()
    assert other.warm.full()
    assert gauge(tier, metrics_warm.MEMORY_FULL) == 1
    moves = other.moves
    full.table.full = 0
    await full.until(lambda: other.moves > moves and not other.warm.full())
    assert gauge(tier, metrics_warm.MEMORY_FULL) == 0
    assert full.residence.bytes_held <= 1 << 16
    assert full.lost == other.lost == []
    await full.warm.close()
    await other.warm.close()


async def test_what_waits_for_the_disk_counts_as_memory(tier: WarmTier, disk: Disk) -> None:
    bench = Bench(tier, disk)
    bench.table.full = 1 << 30
    bench.warm.keep([(b"other", bytes(1 << 17))], 1)
    assert bench.warm.full()
    bench.table.full = 0
    await bench.until(lambda: not bench.warm.full())
    assert bench.warm.bytes_waiting == 0
    await bench.warm.close()


async def test_a_partition_that_goes_gives_its_memory_back(tier: WarmTier, disk: Disk) -> None:
    goes, stays = Bench(tier, disk, 0), Bench(tier, disk, 1)
    goes.table.full = 1 << 30
    goes.runs(0, 260)
    goes.checkpoint()
    assert stays.warm.full()
    moves = stays.moves
    await goes.warm.close()
    assert stays.moves > moves
    assert not stays.warm.full()
    await stays.warm.close()


async def test_a_database_that_never_takes_again_though_its_disk_does_is_opened_anew(
    tier: WarmTier, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dalsegno.streams.engine.warm_partition._RECOVERS_S", 0.0)
    bench = Bench(tier, disk)
    bench.runs(0, 10)
    bench.checkpoint()
    await bench.until(lambda: not bench.warm.unsaved)
    well = [False]
    monkeypatch.setattr(tier, "disk_takes", lambda: well[0])
    failures = metrics_warm.WARM_WRITE_FAILURES
    bench.table.full = 1 << 30
    bench.runs(10, 10)
    bench.checkpoint()
    await bench.until(lambda: tier.metrics.registry.get_sample_value(failures.name) == 2)
    assert bench.lost == [], "as long as the disk takes nothing, it is waited for"
    well[0] = True
    await bench.until(lambda: bench.lost)
    assert "though the disk does" in str(bench.lost[0])
    await bench.warm.close()
    again = tier.open(0)
    assert again.place is not None, "it is behind, and no more than that"
    assert again.totals().runs == 10
    assert wiped(tier) == {}


def test_a_folder_that_takes_no_file_says_so(tier: WarmTier) -> None:
    assert tier.disk_takes()
    assert list(tier.path.glob("probe*")) == []
    tier.path.rename(tier.path.with_name("away"))
    assert not tier.disk_takes()


class Alone:
    """A partition that is all in memory for want of a database."""

    def __init__(self, tier: WarmTier, sizes: dict[bytes, int]) -> None:
        self.again: list[WarmLost] = []
        self.moves = 0
        self.side = MemoryAlone(tier, sizes, again=self.again.append, moved=self.moved)

    def moved(self) -> None:
        self.moves += 1


async def test_a_partition_without_a_database_counts_towards_the_bound(
    tier: WarmTier, disk: Disk
) -> None:
    alone, other = Alone(tier, {b"r%d" % n: 100 for n in range(200)}), Bench(tier, disk)
    assert alone.side.bytes_held == UNPACKED * 20_000
    assert not other.warm.full()
    alone.side.keep([(b"r1", bytes(20_000)), (b"r2", None)], 7)
    assert alone.side.bytes_held == UNPACKED * (19_800 + 20_002)
    assert other.warm.full()
    assert alone.side.full()
    await alone.side.close()
    assert other.moves > 0
    assert not other.warm.full()
    await other.warm.close()


async def test_it_is_opened_anew_once_the_disk_takes_a_database(
    tier: WarmTier, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dalsegno.streams.engine.memory_alone._LOOK_S", 0.01)
    looked = 0

    def takes() -> bool:
        nonlocal looked
        looked += 1
        return looked > 3

    monkeypatch.setattr(tier, "disk_takes", takes)
    alone, bench = Alone(tier, {}), Bench(tier, disk)
    await bench.until(lambda: alone.again)
    assert looked == 4
    await alone.side.close()
    await bench.warm.close()


def test_what_does_not_fit_in_memory_is_not_restored_there() -> None:
    sink = PartsSink(1_000)
    sink.take({b"a": bytes(600), b"b": bytes(300)}, 1)
    sink.take({b"a": None, b"c": bytes(600)}, 2)
    assert sink.sizes() == {b"b": 301, b"c": 601}
    with pytest.raises(StoreFullError, match="make room"):
        sink.take({b"d": bytes(98)}, 3)
