"""P2: a fold whose runs are mostly not in memory gives the same bytes as one that has them all."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.property import digest_of_log
from tests.property.digest_of_log import drive
from tests.property.folding import Folding
from tests.property.spilling import Spilling, crash_of_memory, run
from tests.property.test_partition_promises import PartitionMachine
from tests.unit.storage.faulty import FaultyTable
from tests.unit.storage.tables import rocks

from dalsegno.storage.memory import MemoryTable
from dalsegno.storage.ports import Table
from dalsegno.streams.core.partition import PARTITION_KEY, Partition
from dalsegno.streams.core.state_codec import StateCorrupt

MANY = tuple(f"r{n}" for n in range(40))


def folded(seed: int, events: int) -> Folding:
    """A random log of many runs, folded in memory."""
    rng = random.Random(seed)
    machine = PartitionMachine()
    machine.runs_start()
    folding = machine.promises.folding
    while len(folding.log) < events:
        drive(machine, rng)
    return folding


@pytest.fixture(autouse=True)
def many_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest_of_log, "RUNS", MANY)


def same(spilling: Spilling, folding: Folding) -> None:
    """State, deadlines and what is shown of every run."""
    one, other = spilling.partition, folding.partition
    assert one.parts() == other.parts()
    assert one.digest() == other.digest()
    assert one.next_log_deadline_ms == other.next_log_deadline_ms
    assert one.next_live_deadline_ms == other.next_live_deadline_ms
    assert (one.open_runs, one.in_flight, one.waiting) == (
        other.open_runs, other.in_flight, other.waiting,
    )  # fmt: skip
    assert set(one.run_ids()) == set(other.run_ids())
    held = spilling.residence.outside
    assert {name: one.run(name) for name in MANY} == {name: other.run(name) for name in MANY}
    assert spilling.residence.outside == held, "to be looked at brings no run into memory"


@pytest.mark.parametrize("seed", range(6))
def test_spilled_and_resident_folds_give_the_same_bytes(seed: int) -> None:
    folding = folded(seed, 1_500)
    rng = random.Random(seed)
    spilling = Spilling(rng, MemoryTable, crash_of_memory(rng))
    run(spilling, folding.log, folding.outputs)
    same(spilling, folding)
    assert min(spilling.left, spilling.offered, spilling.restarts, spilling.late) > 0


def test_the_same_with_rocksdb_and_a_store_that_is_busy_full_and_lost(tmp_path: Path) -> None:
    folding = folded(99, 1_500)
    rng = random.Random(99)
    made: list[FaultyTable] = []

    def table() -> Table:
        made.append(FaultyTable(rocks(tmp_path / str(len(made)))))
        made[-1].busy, made[-1].full = rng.randrange(3), 0
        return made[-1]

    def lose(held: Table) -> Table | None:
        held.close()
        return None if rng.random() < 0.5 else FaultyTable(rocks(tmp_path / str(len(made) - 1)))

    spilling = Spilling(rng, table, lose)
    spilling.table.full = 2  # type: ignore[attr-defined]
    run(spilling, folding.log, folding.outputs)
    same(spilling, folding)
    assert spilling.wiped > 0
    assert spilling.restarts > spilling.wiped
    spilling.table.close()


def test_a_restart_with_the_store_reads_only_what_moves() -> None:
    folding = folded(5, 1_500)
    rng = random.Random(5)
    spilling = Spilling(rng, MemoryTable, lambda table: table)
    for record in folding.log:
        spilling.partition.apply(record)
    spilling.capture()
    spilling.put()
    spilling.crash()
    assert spilling.residence.outside > 0
    assert spilling.partition.in_flight == folding.partition.in_flight
    assert spilling.partition.drain_in_flight() != []
    same(spilling, folding)


def test_without_its_own_part_a_store_with_runs_is_refused() -> None:
    folding = folded(7, 300)
    rng = random.Random(7)
    spilling = Spilling(rng, MemoryTable, lambda table: table)
    for record in folding.log:
        spilling.partition.apply(record)
    spilling.capture()
    spilling.put()
    spilling.store.put({PARTITION_KEY: None})
    with pytest.raises(StateCorrupt):
        Partition.open(3, spilling.store)
