"""P1 to P7 for runs in the archive: a fold in which they leave and come back is the same fold."""

from __future__ import annotations

import random
from collections import defaultdict

import msgspec
import pytest
from tests.property.archive_mutants import MUTANTS
from tests.property.archiving import ArchivingMachine, Rested, archived_log, gather, roomy_log
from tests.property.folding import Folding
from tests.property.spilling import Spilling, crash_of_memory, run
from tests.property.test_partition_promises import PartitionMachine
from tests.simulation.mutants import Mutant

from dalsegno.schemas.outputs import Outcome
from dalsegno.storage.memory import MemoryTable
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.state_codec import StateCorrupt

ArchivingMachine.TestCase.settings = PartitionMachine.TestCase.settings
TestArchivedRuns = ArchivingMachine.TestCase


def outputs_of(log) -> dict[str, list[object]]:
    """What came of each run without an archive."""
    found: dict[str, list[object]] = defaultdict(list)
    partition = Partition(3)
    for record in log:
        gather(found, partition.apply(record))
    return found


def same(rested: Rested, folding: Folding) -> None:
    """Nothing shows that runs have been away."""
    assert rested.by_run == outputs_of(folding.log)
    one, other = rested.partition, folding.partition
    assert {name: one.run(name) for name in one.run_ids()} == {
        name: other.run(name) for name in other.run_ids()
    }
    assert one.policy == other.policy
    mine, theirs = one.counts, other.counts
    for outcome in (Outcome.SUPERSEDED, Outcome.DEAD_LETTERED, Outcome.REFUSED):
        assert mine[outcome] == theirs[outcome]
    assert (one.in_flight, one.waiting, one.open_runs) == (
        other.in_flight, other.waiting, other.open_runs,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_a_fold_with_runs_at_rest_gives_the_same_as_one_without(seed: int) -> None:
    folding = roomy_log(seed, 2_500)
    rested = Rested(random.Random(seed))
    rested.fold(folding.log)
    same(rested, folding)
    assert min(rested.left, rested.back) > 10


@pytest.mark.parametrize("seed", range(6))
def test_the_same_log_gives_the_same_bytes_with_a_store_that_crashes(seed: int) -> None:
    folding = archived_log(seed, 1_200)
    rng = random.Random(seed)
    spilling = Spilling(rng, MemoryTable, crash_of_memory(rng))
    run(spilling, folding.log, folding.outputs)
    one, other = spilling.partition, folding.partition
    assert one.parts() == other.parts()
    spilling.capture()
    assert spilling.compacted() == other.parts()
    assert one.archived.count == other.archived.count
    assert [name for name, _ in one.archived.wanted()] == [
        name for name, _ in other.archived.wanted()
    ]
    assert (one.open_runs, one.waiting) == (other.open_runs, other.waiting)
    assert spilling.restarts > 0


def finds(seed: int) -> bool:
    """Whether any of the folds is another one, or breaks."""
    rng = random.Random(seed)
    try:
        folding = roomy_log(seed, 900)
        rested = Rested(rng)
        rested.fold(folding.log)
        same(rested, folding)
        late = archived_log(seed, 500)
        late.capture()
        late.crash()
        spilling = Spilling(rng, MemoryTable, crash_of_memory(rng))
        run(spilling, late.log, late.outputs)
        assert spilling.partition.parts() == late.partition.parts()
        spilling.capture()
        assert spilling.compacted() == late.partition.parts()
        assert spilling.partition.archived.wanted() == late.partition.archived.wanted()
    except (AssertionError, KeyError, StateCorrupt, msgspec.DecodeError):
        return True
    return False


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_a_deliberate_bug_of_runs_at_rest_is_found(mutant: Mutant) -> None:
    for seed in range(6):
        with mutant.bug():
            found = finds(seed)
        if found:
            assert not finds(seed), "else it is not the bug that was found"
            return
    raise AssertionError(f"not found: {mutant.name}")
