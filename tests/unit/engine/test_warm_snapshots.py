"""Snapshot chains beside the loop: written after the store has the run, and gone with it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.unit.engine.warm_bench import Bench, Disk, disk, make_tier

from dalsegno.schemas.control import ErasureRequested, RunControl
from dalsegno.schemas.events import InformationSupplied, RunCancelled, RunEvent, RunStarted
from dalsegno.schemas.plan import Plan, StepPlan
from dalsegno.storage.snapshots import recorder
from dalsegno.storage.snapshots.link import read_link
from dalsegno.storage.snapshots.pace import Pace
from dalsegno.storage.snapshots.store import LINK
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.record import Record
from dalsegno.streams.core.versions import VersionView
from dalsegno.streams.engine import metrics_snapshots
from dalsegno.streams.engine.warm_tier import WarmTier

__all__ = ["disk"]

pack = msgspec.msgpack.encode
PLAN = Plan(steps=(StepPlan(name="a", queue="default", timeout_ms=60_000),), secrets=("pin",))
MARKER = "4711-is-the-pin"
NOTE = random.Random(1).randbytes(4_000)


@pytest.fixture
def tier(tmp_path: Path, disk: Disk) -> Iterator[WarmTier]:
    made = make_tier(tmp_path, disk, 1 << 24)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def a_cadence_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this machine takes for a link: `every` stays as a test has set it."""
    monkeypatch.setattr(Pace, "tick", lambda _self, _now_s, _pending: False)


class Chained(Bench):
    """A bench whose runs get facts from outside: each is a version."""

    def take(self, *events: RunEvent | RunControl) -> None:
        for event in events:
            self.partition.apply(Record(self.offset, 1_700_000_000_000, b"", b"", event))
            self.offset += 1

    def start(self, run_id: str = "r") -> None:
        context = pack({"n": 0, "pin": MARKER, "log": [], "note": NOTE})
        self.take(RunStarted(run_id=run_id, flow="f", flow_version=2, plan=PLAN, context=context))

    def supply(self, count: int, run_id: str = "r") -> None:
        for _ in range(count):
            number = self.offset
            ops = [["set", ["n"], number], ["app", ["log"], [number]], ["set", ["pin"], MARKER * 2]]
            self.take(
                InformationSupplied(
                    run_id=run_id, information_id=str(number), ops=pack(ops), origin="test"
                )
            )

    def links(self) -> list[tuple[bytes, bytes]]:
        return self.table.scan(LINK, LINK + b"\xff", 1_000)

    async def at(self, version: int, run_id: str = "r") -> VersionView | None:
        return await self.warm.version(run_id, version)


def counted(tier: WarmTier, name: str) -> float:
    return sum(
        sample.value
        for metric in tier.metrics.registry.collect()
        for sample in metric.samples
        if sample.name == name
    )


async def test_a_chain_is_written_once_enough_versions_wait(tier: WarmTier, disk: Disk) -> None:
    bench = Chained(tier, disk)
    assert bench.warm.snapshots is not None
    bench.warm.snapshots.pace.every = 5
    bench.start()
    bench.supply(2)
    bench.checkpoint()
    await bench.until(lambda: not bench.warm.unsaved)
    assert bench.links() == []
    early = await bench.at(2)
    assert early is not None
    assert early.source == "memory"
    bench.supply(2)
    bench.checkpoint()
    await bench.until(bench.links)
    newest = [await bench.at(version) for version in range(1, 6)]
    assert [view.source for view in newest if view is not None] == ["chain"] * 5
    assert newest[1] is not None
    assert msgspec.msgpack.decode(newest[1].context) == {"log": [1], "n": 1, "note": NOTE}
    assert newest[1].secrets_omitted == ("pin",)
    assert (newest[1].flow, newest[1].flow_version) == ("f", 2)
    assert await bench.at(6) is None
    assert counted(tier, metrics_snapshots.SNAPSHOT_LINKS.name) == 2
    await bench.warm.close()


async def test_no_secret_is_in_a_link(tier: WarmTier, disk: Disk) -> None:
    bench = Chained(tier, disk)
    assert bench.warm.snapshots is not None
    bench.warm.snapshots.pace.every = 1
    for _ in range(4):
        bench.start() if not bench.offset else bench.supply(1)
        bench.checkpoint()
        await bench.until(lambda: not bench.warm.unsaved)
    await bench.until(lambda: any(key[-1] == 4 for key, _ in bench.links()))
    dictionary = b""
    for _, data in bench.links():
        payload = read_link("r", data).payload(dictionary)
        dictionary = (dictionary + payload)[-32_768:]
    assert b"pin" in dictionary
    assert MARKER.encode() not in dictionary
    await bench.warm.close()


async def test_what_waits_is_written_when_the_partition_goes(tier: WarmTier, disk: Disk) -> None:
    bench = Chained(tier, disk)
    bench.start()
    bench.supply(3)
    bench.checkpoint()
    await bench.until(lambda: not bench.warm.unsaved)
    assert bench.links() == []
    await bench.warm.close()
    again = Chained(tier, disk)
    assert {key[-1] for key, _ in again.links()} == {1, 4}
    view = await again.at(3)
    assert view is not None
    assert view.source == "chain"
    await again.warm.close()


async def test_a_chain_goes_with_its_run(tier: WarmTier, disk: Disk) -> None:
    bench = Chained(tier, disk)
    assert bench.warm.snapshots is not None
    bench.warm.snapshots.pace.every = 2
    for run_id in ("r", "rr"):
        bench.start(run_id)
        bench.supply(3, run_id)
    bench.checkpoint()
    await bench.until(lambda: len(bench.links()) == 4)
    bench.supply(1)
    bench.take(RunCancelled(run_id="r", request_id="stop"))
    bench.checkpoint()
    await bench.until(lambda: len(bench.links()) == 2)
    assert all(key.startswith(b"krr\0") for key, _ in bench.links())
    assert await bench.at(2) is None
    assert bench.warm.snapshots.pending == 0
    await bench.warm.close()


@pytest.mark.parametrize("stored", [True, False])
async def test_an_erased_run_is_forgotten(tier: WarmTier, disk: Disk, *, stored: bool) -> None:
    bench = Chained(tier, disk)
    snapshots = bench.warm.snapshots
    assert snapshots is not None
    snapshots.pace.every = 2 if stored else 20
    bench.start("other")
    bench.start()
    if stored:
        bench.supply(2)
        bench.checkpoint()
        await bench.until(bench.links)
    bench.supply(1)
    bench.take(ErasureRequested(run_id="r", erasure_id="e", reason="asked", requested_by="ana"))
    bench.checkpoint()
    await bench.until(lambda: not bench.warm.unsaved and not bench.warm._putting)
    assert bench.links() == []
    assert snapshots._recorder.noted("r") == []
    assert snapshots.pending == 1
    assert await bench.at(2) is None
    await bench.warm.close()


async def test_links_that_wait_do_not_hold_an_erasure_up(tier: WarmTier, disk: Disk) -> None:
    bench = Chained(tier, disk)
    assert bench.warm.snapshots is not None
    bench.warm.snapshots.pace.every = 1
    bench.warm._turn_at_s = float("inf")
    bench.start()
    bench.checkpoint()
    await bench.until(lambda: not bench.warm.unsaved and bench.warm.snapshots.due)  # type: ignore[union-attr]
    assert await bench.warm.forget()
    bench.warm._turn_at_s = 0.0
    await bench.warm.close()


async def test_a_damaged_link_is_counted_and_the_one_before_is_used(
    tier: WarmTier, disk: Disk
) -> None:
    bench = Chained(tier, disk)
    assert bench.warm.snapshots is not None
    bench.warm.snapshots.pace.every = 1
    for number in range(6):
        bench.start() if not number else bench.supply(1)
        bench.checkpoint()
        await bench.until(lambda number=number: len(bench.links()) == number + 1)
    key, link = bench.links()[3]
    bench.table.write({key: link[:-40] + b"x" + link[-39:]})
    assert await bench.at(3) is not None
    assert await bench.at(4) is None
    corrupt = metrics_snapshots.SNAPSHOT_CORRUPT.name
    assert counted(tier, corrupt) == 1
    await bench.warm.close()
    # The next owner goes on from the newest link that is whole: nothing it says is another thing.
    again = Chained(tier, disk)
    again.offset = bench.offset
    again.supply(1)
    again.checkpoint()
    await again.until(lambda: not again.warm.unsaved)
    await again.warm.close()
    last = Chained(tier, disk)
    view = await last.at(7)
    assert view is not None
    assert msgspec.msgpack.decode(view.context) == {
        "log": [1, 2, 3, 4, 5, 6],
        "n": 6,
        "note": NOTE,
    }
    assert await last.at(5) is None
    assert counted(tier, corrupt) > 1
    await last.warm.close()


def restarted(run_id: str, at_ms: int, partition: Partition) -> dict[bytes, bytes | None]:
    """What a changelog says of an id that was forgotten and used again."""
    context = pack({"n": 700, "pin": MARKER, "log": [], "note": b""})
    event = RunStarted(run_id=run_id, flow="f", flow_version=3, plan=PLAN, context=context)
    fresh = Partition(partition.number)
    fresh.apply(Record(0, at_ms, b"", b"", event))
    return {key: value for key, value in fresh.parts().items() if key[:1] in b"rcs" and key[:1]}


async def test_another_run_of_the_same_id_has_a_history_of_its_own(
    tier: WarmTier, disk: Disk
) -> None:
    bench = Chained(tier, disk)
    assert bench.warm.snapshots is not None
    bench.warm.snapshots.pace.every = 2
    bench.start()
    bench.supply(3)
    bench.checkpoint()
    await bench.until(lambda: len(bench.links()) == 2)
    await bench.warm.close()
    # The changelog's tail, read back at once: the store never heard that the first run went.
    store = tier.open(0)
    store.put(restarted("r", 1_700_000_900_000, bench.partition))
    tier.close_store(0, store)
    again = Chained(tier, disk)
    again.offset = bench.offset
    assert len(again.links()) == 2
    newest = await again.at(1)
    assert newest is None, "the chain is of the first run"
    assert again.warm.snapshots is not None
    again.warm.snapshots.pace.every = 1
    again.supply(1)
    again.checkpoint()
    await again.until(lambda: {key[-1] for key, _ in again.links()} == {2})
    view = await again.at(2)
    assert view is not None
    assert msgspec.msgpack.decode(view.context)["log"] == [again.offset - 1]
    await again.warm.close()


async def test_what_cannot_be_stored_is_bounded_and_the_chain_goes_on_behind_it(
    tier: WarmTier, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "PENDING_BYTES_MAX", 30_000)
    bench = Chained(tier, disk)
    assert bench.warm.snapshots is not None
    bench.warm.snapshots.pace.every = 1
    bench.start()
    bench.checkpoint()
    await bench.until(lambda: len(bench.links()) == 1)
    bench.table.full = 1_000_000
    for _ in range(60):
        bench.supply(2)
        bench.checkpoint()
    assert bench.warm.snapshots.weight <= 31_000
    bench.table.full = 0
    await bench.until(lambda: not bench.warm.unsaved)
    given_up = metrics_snapshots.SNAPSHOT_GIVEN_UP.name
    bench.supply(1)
    bench.checkpoint()
    await bench.until(lambda: any(key[-1] == 122 for key, _ in bench.links()))
    view = await bench.at(122)
    assert view is not None
    assert msgspec.msgpack.decode(view.context)["log"] == list(range(1, 122))
    assert counted(tier, given_up) > 0
    await bench.warm.close()


async def test_without_the_setting_nothing_is_kept(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DALSEGNO_SNAPSHOTS", "false")
    tier = make_tier(tmp_path, disk)
    bench = Chained(tier, disk)
    assert bench.warm.snapshots is None
    bench.start()
    assert bench.partition.versions.drain() == []
    assert await bench.at(1) is None
    await bench.warm.close()
    tier.close()
