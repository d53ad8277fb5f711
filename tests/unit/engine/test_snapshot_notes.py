"""What snapshots note in memory counts towards its hard bound, and alone never reaches it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.engine.test_warm_snapshots import Chained, a_cadence_of_ours
from tests.unit.engine.warm_bench import Disk, disk, make_tier

from dalsegno.streams.engine.warm_tier import WarmTier

__all__ = ["a_cadence_of_ours", "disk"]


@pytest.fixture
def tier(tmp_path: Path, disk: Disk) -> Iterator[WarmTier]:
    made = make_tier(tmp_path, disk, 1 << 18)
    yield made
    made.close()


def notes(bench: Chained) -> int:
    assert bench.warm.snapshots is not None
    return bench.warm.snapshots.bytes_held


def noted(tier: WarmTier, disk: Disk, *, every: int = 1) -> Chained:
    bench = Chained(tier, disk, len(tier.sides))
    assert bench.warm.snapshots is not None
    bench.warm.snapshots.pace.every = every
    bench.start()
    return bench


async def test_notes_that_wait_for_the_disk_count_as_memory(tier: WarmTier, disk: Disk) -> None:
    bench = noted(tier, disk)
    before = tier.room()
    bench.table.full = 1 << 30
    bench.checkpoint()
    first, parts = bench.warm.bytes_waiting, bench.warm._pending.items()
    assert notes(bench) > 4_000, "the context of a new run"
    assert first == notes(bench) + sum(len(key) + len(value or b"") for key, value in parts)
    assert tier.room() <= before - first
    bench.supply(20)
    bench.checkpoint()
    assert bench.warm.bytes_waiting >= first + 20 * 400
    bench.table.full = 0
    await bench.until(lambda: not bench.warm.unsaved and bench.links())
    await bench.warm.close()


@pytest.mark.parametrize("every", [1, 1_000])
async def test_what_chains_keep_in_memory_counts_too(
    tier: WarmTier, disk: Disk, every: int
) -> None:
    bench = noted(tier, disk, every=every)
    bench.supply(5)
    bench.checkpoint()
    await bench.until(lambda: not bench.warm.unsaved and (every > 1 or bench.links()))
    await bench.until(lambda: bench.warm._writer is None)
    assert bench.warm.bytes_waiting == notes(bench) > 400
    await bench.warm.close()


@pytest.mark.parametrize("every", [1, 1_000])
async def test_notes_alone_never_fill_memory(tier: WarmTier, disk: Disk, every: int) -> None:
    tier.changelog = replace(tier.changelog, partitions=2)
    benches = [noted(tier, disk, every=every) for _ in range(2)]
    for bench in benches:
        for number in range(60):
            bench.start(f"r{number}")
            bench.supply(3, f"r{number}")
            if number % 2 == 0:
                bench.checkpoint()
        bench.checkpoint()
    for bench in benches:
        await bench.until(lambda bench=bench: not bench.warm.unsaved and bench.warm._writer is None)
    between = tier.settings.memory_bound - tier.settings.memory_bytes
    assert 0 < sum(map(notes, benches)) <= between // 2
    assert not benches[0].warm.full()
    for bench in benches:
        await bench.warm.close()
