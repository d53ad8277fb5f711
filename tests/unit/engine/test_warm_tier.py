"""What an engine trusts of its local databases, and what it does when they fail."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree

import pytest
from benchmarks.engine_lab.load import run_events
from tests.unit.engine.warm_bench import HOUR_MS, Bench, Disk, disk, make_tier, tier, wiped

from dalsegno.storage.errors import StoreFullError
from dalsegno.storage.folder import EngineFolder
from dalsegno.storage.warm import Place
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.record import Record
from dalsegno.streams.core.warm import WarmLost
from dalsegno.streams.engine.batch import Batch
from dalsegno.streams.engine.metrics_warm import WARM_WRITE_FAILURES
from dalsegno.streams.engine.sinks import StoreSink
from dalsegno.streams.engine.warm_tier import Changelog, WarmTier, now_ms

__all__ = ["disk", "tier"]


def left(tier: WarmTier, place: Place) -> None:
    store = tier.open(0)
    store.put({b"\0partition": b"own"}, place)
    tier.close_store(0, store)


def test_a_store_is_read_on_from_its_place(tier: WarmTier) -> None:
    left(tier, Place(70, now_ms()))
    sink = StoreSink(tier, 0)
    assert sink.begin(10, 100) == 70
    assert not sink.empty
    assert wiped(tier) == {}


@pytest.mark.parametrize(
    ("position", "age_ms", "reason"),
    [
        (101, 0, "ahead"),
        (9, 0, "behind"),
        (70, 13 * HOUR_MS, "too_old"),
        (70, -HOUR_MS, "too_old"),
    ],
)
def test_a_store_that_nobody_can_vouch_for_is_thrown_away(
    tier: WarmTier, position: int, age_ms: int, reason: str
) -> None:
    left(tier, Place(position, now_ms() - age_ms))
    sink = StoreSink(tier, 0)
    assert sink.begin(10, 100) == 10
    assert sink.empty
    assert wiped(tier) == {reason: 1}


def test_half_a_restore_is_too_old_to_go_on_from(tier: WarmTier) -> None:
    sink = StoreSink(tier, 0)
    sink.begin(0, 100)
    sink.take({b"\0partition": b"own"}, 50)
    sink.give_up(None)
    again = StoreSink(tier, 0)
    assert again.begin(0, 100) == 0
    again.take({b"\0partition": b"own"}, 100)
    again.finish(100)
    again.give_up(None)
    third = StoreSink(tier, 0)
    assert third.begin(0, 200) == 100


def test_a_store_of_another_cluster_or_topic_is_thrown_away(tmp_path: Path, disk: Disk) -> None:
    tier = make_tier(tmp_path, disk)
    left(tier, Place(70, now_ms()))
    tier.changelog = Changelog("cluster/topic/recreated", HOUR_MS)
    sink = StoreSink(tier, 0)
    assert sink.begin(0, 100) == 0
    assert wiped(tier) == {"damaged": 1}
    tier.close()


def test_a_partition_that_comes_back_waits_for_its_old_store_to_close(tier: WarmTier) -> None:
    store = tier.open(0)
    store.put({b"\0partition": b"own"}, Place(3, now_ms()))
    closing = threading.Timer(0.2, lambda: tier.close_store(0, store))
    closing.start()
    again = tier.open(0)
    closing.join()
    assert again.place is not None
    assert again.place.position == 3


def test_one_that_does_not_close_is_left_where_it_is(
    tier: WarmTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dalsegno.streams.engine.warm_tier._CLOSING_S", 0.0)
    first = tier.open(0)
    first.put({b"\0partition": b"own"}, Place(3, now_ms()))
    second = tier.open(0)
    assert second.place is None
    assert first.place is not None


def test_partitions_are_opened_and_closed_while_old_databases_are_removed(
    tier: WarmTier, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    left(tier, Place(70, now_ms()))
    (old,) = disk.tables
    (old / "data").write_bytes(b"erased since")
    del disk.tables[old]
    monkeypatch.setattr(tier, "too_old_ms", lambda: now_ms() + HOUR_MS)
    removing, go_on = threading.Event(), threading.Event()

    def slow(path: Path, *, ignore_errors: bool) -> None:
        removing.set()
        assert go_on.wait(60)
        rmtree(path, ignore_errors=ignore_errors)

    monkeypatch.setattr("dalsegno.storage.folder.shutil.rmtree", slow)
    other = tier.open(1)
    sweeping = threading.Thread(target=tier.sweep)
    sweeping.start()
    assert removing.wait(60)
    with ThreadPoolExecutor(1) as opener:
        try:
            opener.submit(tier.close_store, 1, other).result(60)
            store = opener.submit(tier.open, 0).result(60)
        finally:
            go_on.set()
            sweeping.join()
    assert store.place is None
    (folder,) = tier.path.glob("partition-0.*")
    assert not (folder / "data").exists()
    assert list(tier.path.rglob("data")) == []


def test_one_that_is_not_flushed_and_not_replaced_is_closed_all_the_same(
    tier: WarmTier,
    disk: Disk,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def full(*_: object) -> Path:
        raise StoreFullError("No space left on device")

    store = tier.open(0)
    with monkeypatch.context() as patched:
        patched.setattr(disk.newest, "close", full)
        patched.setattr(EngineFolder, "another", full)
        with pytest.raises(StoreFullError):
            tier.close_store(0, store, condemned=True)
    assert "database not flushed" in capsys.readouterr().out
    monkeypatch.setattr("dalsegno.streams.engine.warm_tier._CLOSING_S", 0.0)
    tier.open(0)
    assert "still open" not in capsys.readouterr().out


async def test_runs_leave_once_they_are_stored_and_not_before(tier: WarmTier, disk: Disk) -> None:
    bench = Bench(tier, disk)
    bench.runs(0, 200)
    assert bench.residence.outside == 0
    bench.checkpoint()
    assert bench.residence.outside == 0
    await bench.until(lambda: bench.residence.outside)
    assert bench.residence.bytes_held <= 1 << 16
    assert bench.partition.open_runs == 200
    await bench.warm.close()


async def test_the_longest_untouched_leave_first_over_all_partitions(
    tier: WarmTier, disk: Disk
) -> None:
    old, new = Bench(tier, disk, 0), Bench(tier, disk, 1)
    old.runs(0, 20)
    old.checkpoint()
    await old.until(lambda: not old.warm.unsaved)
    new.runs(0, 15)
    new.checkpoint()
    await new.until(lambda: old.residence.outside)
    assert old.residence.outside > 3
    assert new.residence.outside == 0
    await old.warm.close()
    await new.warm.close()


@pytest.mark.parametrize("how", ["busy", "full"])
async def test_a_disk_that_takes_nothing_keeps_runs_in_memory_and_loses_none(
    tier: WarmTier, disk: Disk, how: str
) -> None:
    bench = Bench(tier, disk)
    setattr(bench.table, how, 3)
    bench.runs(0, 100)
    bench.checkpoint()
    bench.runs(100, 100)
    bench.checkpoint()
    await bench.until(lambda: getattr(bench.table, how) < 3)
    assert bench.residence.outside == 0
    await bench.until(lambda: bench.residence.outside)
    assert bench.lost == []
    alone = Partition(0)
    offset = 0
    for number in range(200):
        for _, event in zip(range(3), run_events(f"r{number:04d}"), strict=False):
            alone.apply(Record(offset, 1_700_000_000_000, b"", b"", event))
            offset += 1
    assert bench.partition.parts() == alone.parts()
    await bench.warm.close()


def raises(bench: Bench, times: int) -> list[int]:
    """The next writes raise what no store is known to raise. Counts them."""
    tries: list[int] = []

    def fail() -> None:
        if len(tries) < times:
            tries.append(1)
            raise KeyError("nobody knows why")

    bench.table.waits = fail
    return tries


async def test_a_write_that_raises_anything_is_tried_again_without_another_checkpoint(
    tier: WarmTier, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dalsegno.streams.engine.warm_partition._FULL_FIRST_S", 0.01)
    bench = Bench(tier, disk)
    bench.runs(0, 100)
    tries = raises(bench, 4)
    bench.checkpoint()
    await bench.until(lambda: bench.residence.outside)
    assert (len(tries), bench.warm.unsaved, bench.lost) == (4, 0, [])
    assert tier.metrics.registry.get_sample_value(WARM_WRITE_FAILURES.name) == 4
    await bench.warm.close()


async def test_one_that_goes_on_raising_ends_the_partition_and_not_its_database(
    tier: WarmTier, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dalsegno.streams.engine.warm_partition._FULL_FIRST_S", 0.01)
    bench = Bench(tier, disk)
    bench.runs(0, 1)
    bench.checkpoint()
    await bench.until(lambda: not bench.warm.unsaved)
    bench.runs(1, 100)
    tries = raises(bench, 1_000)
    bench.checkpoint()
    await bench.until(lambda: bench.lost)
    assert "nobody knows why" in str(bench.lost[0])
    assert len(tries) == 5
    bench.table.waits = lambda: None
    await bench.warm.close()
    assert tier.open(0).place is not None


async def test_a_store_that_lies_is_lost_and_thrown_away(tier: WarmTier, disk: Disk) -> None:
    bench = Bench(tier, disk)
    bench.runs(0, 200)
    bench.checkpoint()
    await bench.until(lambda: bench.residence.outside)
    bench.table.lie = lambda key, value: value[:-1]
    with pytest.raises(WarmLost):
        bench.runs(0, 200, events=1)
    bench.warm.lost(WarmLost("told"))
    await bench.warm.close()
    bench.table.lie = None
    assert tier.open(0).place is None


@dataclass(frozen=True)
class Seen:
    """A record as a batch has it."""

    key: bytes
    timestamp: int = 1_700_000_000_000


def batch(*names: str) -> Batch:
    return Batch(
        receiver=None,  # type: ignore[arg-type]
        ticket=0,
        records=[Seen(name.encode()) for name in names],  # type: ignore[misc]
        next_position=0,
        end_offset=0,
    )


async def test_what_a_batch_touches_is_read_before_it_is_applied(
    tier: WarmTier, disk: Disk
) -> None:
    bench = Bench(tier, disk)
    bench.runs(0, 200)
    bench.checkpoint()
    await bench.until(lambda: bench.residence.outside)
    late, done = bench.residence.late, asyncio.Event()
    bench.warm.ahead(batch("r0000", "r0001", "r0150", "nobody"), done.set)
    assert not done.is_set()
    await done.wait()
    bench.runs(0, 2, events=1)  # the same starts again: duplicates
    assert bench.residence.late == late
    done.clear()
    bench.warm.ahead(batch("r0000"), done.set)
    assert done.is_set()
    await bench.warm.close()


@pytest.mark.parametrize("error", [StoreFullError("No space left on device"), OSError("?")])
async def test_a_batch_whose_runs_cannot_be_read_ends_the_partition_and_not_its_database(
    tier: WarmTier, disk: Disk, error: Exception
) -> None:
    bench = Bench(tier, disk)
    bench.runs(0, 200)
    bench.checkpoint()
    await bench.until(lambda: bench.residence.outside)
    done = asyncio.Event()

    def fail() -> None:
        raise error

    bench.table.waits = fail
    bench.warm.ahead(batch("r0000"), done.set)
    await bench.until(lambda: bench.lost)
    assert str(error) in str(bench.lost[0])
    assert not done.is_set()
    bench.table.waits = lambda: None
    await bench.warm.close()
    assert tier.open(0).place is not None


async def test_what_an_overtaken_batch_read_is_not_used(tier: WarmTier, disk: Disk) -> None:
    bench = Bench(tier, disk)
    bench.runs(0, 200)
    bench.checkpoint()
    await bench.until(lambda: bench.residence.outside)
    first, gate, done = threading.Lock(), threading.Event(), asyncio.Event()
    first.acquire()

    def only_the_first_waits() -> None:
        if first.locked():
            first.release()
            gate.wait(10)

    bench.table.waits = only_the_first_waits
    old: list[str] = []
    bench.warm.ahead(batch("r0000"), lambda: old.append("applied"))
    await bench.until(lambda: not first.locked())
    bench.warm.ahead(batch("r0001"), done.set)
    await done.wait()
    held = bench.residence.outside
    gate.set()
    await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()}, timeout=0.5)  # type: ignore[arg-type]
    assert old == []
    assert bench.residence.outside == held
    await bench.warm.close()
