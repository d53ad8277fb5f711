"""P2: a fold whose runs are mostly not in memory gives the same bytes as one that has them all."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest
from tests.contract.faulty_tables import FaultyTable
from tests.property import digest_of_log
from tests.property.digest_of_log import drive
from tests.property.folding import Folding
from tests.property.spilling import Spilling, crash_of_memory, run
from tests.property.test_partition_promises import PartitionMachine
from tests.simulation.mutants import Mutant
from tests.simulation.tier_mutants import SPILL_MUTANTS
from tests.unit.storage.tables import rocks

from dalsegno.schemas.control import Policy, PolicySet
from dalsegno.schemas.events import PlanExtended, RunCancelled, RunStarted
from dalsegno.schemas.plan import Plan, StepPlan
from dalsegno.storage import warm, warm_merge
from dalsegno.storage.memory import MemoryTable
from dalsegno.storage.ports import Table
from dalsegno.streams.core import plan_store, timers
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


def of_many_plans(seed: int, events: int) -> Folding:
    """Runs come and go, and with them plans of which some grow in parts and few are shared."""
    rng, folding = random.Random(seed), Folding()
    folding.append(PolicySet(partition=3, number=1, policy=Policy(stub_keep_ms=2_000)))
    for number in range(events):
        run_id, id_ = f"r{rng.randrange(25)}", f"i{number}"
        folding.at_ms += rng.choice((1, 10, 400))
        chance = rng.random()
        if chance < 0.45:
            steps = tuple(StepPlan(name=f"s{rng.randrange(4)}-{n}") for n in range(2))
            plan = Plan(steps=steps)
            started = RunStarted(
                run_id=run_id, flow="f", flow_version=1, plan=plan, context=b"\x80", more=True
            )
            folding.append(started)
        elif chance < 0.75:
            more = (StepPlan(name=f"more{rng.randrange(3)}"),)
            folding.append(PlanExtended(run_id=run_id, extension_id=id_, steps=more, last=False))
        else:
            folding.append(RunCancelled(run_id=run_id, request_id=id_))
    return folding


@pytest.fixture(autouse=True)
def many_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest_of_log, "RUNS", MANY)
    # So small that a few dozen runs pass every bound.
    monkeypatch.setattr(timers, "NEAR_MAX", 6)
    monkeypatch.setattr(timers, "WINDOW", 3)
    monkeypatch.setattr(timers, "_SLACK", 4)
    monkeypatch.setattr(plan_store, "_REMEMBERED", 0)
    monkeypatch.setattr(plan_store, "_SPARE", 0)
    monkeypatch.setattr(warm_merge, "INLINE_BYTES", 300)
    monkeypatch.setattr(warm, "WRITE_PARTS_MAX", 9)


def same(spilling: Spilling, folding: Folding) -> None:
    """State, deadlines and what is shown of every run."""
    one, other = spilling.partition, folding.partition
    assert one.parts() == other.parts()
    spilling.capture()
    assert spilling.compacted() == other.parts()
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


@pytest.mark.parametrize("seed", range(6))
def test_plans_stay_as_long_as_somebody_names_them(seed: int) -> None:
    folding = of_many_plans(seed, 1_500)
    rng = random.Random(seed)
    spilling = Spilling(rng, MemoryTable, crash_of_memory(rng))
    run(spilling, folding.log, folding.outputs)
    same(spilling, folding)


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


def finds(folding: Folding, seed: int) -> bool:
    """Whether the spilled fold of this log is another one, or breaks."""
    rng = random.Random(seed)
    try:
        spilling = Spilling(rng, MemoryTable, crash_of_memory(rng))
        run(spilling, folding.log, folding.outputs)
        same(spilling, folding)
    except (AssertionError, KeyError, StateCorrupt, msgspec.DecodeError):
        return True
    return False


@pytest.mark.parametrize("mutant", SPILL_MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_a_deliberate_bug_of_the_warm_tier_is_found(mutant: Mutant) -> None:
    logs = of_many_plans if "plans" in mutant.name else folded
    for seed in range(6):
        folding = logs(seed, 700)
        with mutant.bug():
            found = finds(folding, seed)
        if found:
            assert not finds(folding, seed), "else it is not the bug that was found"
            return
    raise AssertionError(f"not found: {mutant.name}")
