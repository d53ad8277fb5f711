"""A partition's database is let go of whatever happens to who has it."""

from __future__ import annotations

import threading

import pytest
from tests.unit.engine.warm_bench import Bench, Disk, disk, tier

from dalsegno.storage.errors import StoreError
from dalsegno.storage.warm import WarmStore
from dalsegno.streams.engine.batch import Batch
from dalsegno.streams.engine.sinks import StoreSink
from dalsegno.streams.engine.warm_tier import WarmTier

__all__ = ["disk", "tier"]


def test_a_store_that_is_given_up_while_it_is_opened_is_closed(
    tier: WarmTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restore that was cancelled opened it behind its back, and nobody closed it."""
    opening, goes_on = threading.Event(), threading.Event()
    really = tier.open

    def slowly(partition: int) -> WarmStore:
        opening.set()
        goes_on.wait(60)
        return really(partition)

    monkeypatch.setattr(tier, "open", slowly)
    sink = StoreSink(tier, 0)
    restore = threading.Thread(target=lambda: sink.begin(0, 100))
    restore.start()
    assert opening.wait(60)
    gives_up = threading.Thread(target=lambda: sink.give_up(None))
    gives_up.start()
    gives_up.join(0.05)
    goes_on.set()
    restore.join()
    gives_up.join()
    assert tier._in_use == set()


def test_a_store_that_was_given_up_before_is_not_opened(tier: WarmTier) -> None:
    sink = StoreSink(tier, 0)
    sink.give_up(None)
    with pytest.raises(StoreError, match="given up"):
        sink.begin(0, 100)
    assert tier._in_use == set()


async def test_a_fault_in_what_was_read_ends_the_partition_rather_than_its_batch(
    tier: WarmTier, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tier, disk)

    def offer(*_: object) -> None:
        raise ValueError("a fault of ours")

    monkeypatch.setattr(bench.warm, "_missing", lambda _batch: ["r0001"])
    monkeypatch.setattr(bench.warm._residence, "offer", offer)
    bench.warm.ahead(Batch(None, 0, [], 1, 1), lambda: None)  # type: ignore[arg-type]
    await bench.until(lambda: bench.lost)
    assert "a fault of ours" in str(bench.lost[0])
    await bench.warm.close()


async def test_what_no_store_is_known_to_raise_ends_a_partition_and_not_its_engine(
    tier: WarmTier, disk: Disk, capsys: pytest.CaptureFixture[str]
) -> None:
    """A write that has raised until the partition was given up raises once more at its close."""
    bench = Bench(tier, disk)
    bench.runs(0, 10)

    def fail() -> None:
        raise KeyError("nobody knows why")

    bench.table.waits = fail
    bench.checkpoint()
    await bench.warm.close()
    assert "nobody knows why" in capsys.readouterr().out
    assert tier._in_use == set()
