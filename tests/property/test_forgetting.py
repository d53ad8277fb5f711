"""P11: whatever way a run goes out, the same things are removed; an erased one leaves no byte."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from tests.property import digest_of_log
from tests.property.digest_of_log import drive
from tests.property.folding import Folding
from tests.property.test_partition_promises import PartitionMachine
from tests.unit.core.log import Log, chain, escalations, plan_of
from tests.unit.people.asking import decide
from tests.unit.saga.orders import failed as order_failed
from tests.unit.saga.orders import take_back, until_paid

from dalsegno.schemas.control import ClockTick, ErasureRequested
from dalsegno.schemas.events import RiskFlagged, RunCancelled, StepProgressed
from dalsegno.schemas.outputs import RunState
from dalsegno.schemas.plan import Plan
from dalsegno.streams.core.partition import PARTITION_KEY
from dalsegno.streams.core.partition_parts import ESTIMATE_KEY
from dalsegno.streams.core.tombstones import TOMBSTONE_KEY, digest_of_id

MANY = tuple(f"run-number-{n}" for n in range(12))
KEEP_MS = 5_000


def erasure(run_id: str) -> ErasureRequested:
    return ErasureRequested(run_id=run_id, erasure_id="e", reason="asked for", requested_by="ana")


def under_way(log: Log, plan: Plan) -> None:
    """A run with something in each of its parts."""
    log.start(plan, context={"name": "x" * 400}, ttl_ms=60_000)
    log.began("s0")
    log.put(StepProgressed(run_id="r", step="s0", epoch=1, progress=1, save=b"save"))
    log.put(RiskFlagged(run_id="r", flag_id="1", flag="odd"))


def succeeds(log: Log) -> None:
    under_way(log, chain(2))
    log.done("s0")
    log.began("s1")
    log.done("s1")


def fails(log: Log) -> None:
    gated = plan_of(*chain(2).steps, gates=("odd",))
    under_way(log, gated)
    log.done("s0")
    package = next(each for each in reversed(escalations(log.outputs)) if each.asked == "approval")
    decide(log, package, "reject")


def is_compensated(log: Log) -> None:
    until_paid(log)
    log.began("ship")
    order_failed(log, "ship")
    for name in ("refund", "unpack", "release"):
        take_back(log, name)


def is_cancelled(log: Log) -> None:
    under_way(log, chain(2))
    log.put(RunCancelled(run_id="r", request_id="c"))


def expires(log: Log) -> None:
    under_way(log, chain(2))
    log.now_ms += 100_000
    log.put(ClockTick(partition=0, number=1))
    log.tick_number = 1


def raises_and_is_cancelled(log: Log) -> None:
    def raising(*_: object, **__: object) -> None:
        raise ZeroDivisionError("ours")

    under_way(log, chain(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dalsegno.streams.core.lifecycle.raise_flags", raising)
        log.put(RiskFlagged(run_id="r", flag_id="2", flag="odd"))
    log.put(StepProgressed(run_id="r", step="s0", epoch=1, progress=2))
    log.put(RunCancelled(run_id="r", request_id="c"))


def is_erased(log: Log) -> None:
    under_way(log, chain(2))
    log.put(erasure("r"))


WAYS: dict[Callable[[Log], None], RunState | None] = {
    succeeds: RunState.SUCCEEDED,
    fails: RunState.FAILED,
    is_compensated: RunState.COMPENSATED,
    is_cancelled: RunState.CANCELLED,
    expires: RunState.EXPIRED,
    raises_and_is_cancelled: RunState.CANCELLED,
    is_erased: None,
}


@pytest.mark.parametrize("way", WAYS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("captured_before", [False, True])
def test_every_way_out_removes_the_same(way: Callable[[Log], None], captured_before: bool) -> None:
    log = Log()
    log.policy(stub_keep_ms=KEEP_MS)
    way(log)
    found = log.partition.run("r")
    assert (None if found is None else found.state) is WAYS[way]
    changes = dict(log.partition.capture()) if captured_before else {}
    log.tick(KEEP_MS // 1_000 + 1)
    assert log.partition.run("r") is None
    changes.update(log.partition.capture())
    kept = {key for key, value in changes.items() if value is not None}
    left = {key for key in log.partition.parts() if key[:1] not in {ESTIMATE_KEY, TOMBSTONE_KEY}}
    assert left == {PARTITION_KEY}
    assert {key for key in kept if key[:1] not in {ESTIMATE_KEY, TOMBSTONE_KEY}} == left
    partition = log.partition
    assert (partition.open_runs, partition.in_flight, partition.waiting) == (0, 0, 0)
    assert partition.next_live_deadline_ms is None
    assert not partition.needs_tick


def folded(seed: int, events: int) -> tuple[PartitionMachine, random.Random]:
    """A random log of many runs; the machine goes on with it."""
    rng = random.Random(seed)
    machine = PartitionMachine()
    while len(machine.promises.folding.log) < events:
        drive(machine, rng)
    return machine, rng


@pytest.mark.parametrize("seed", range(12))
def test_an_erased_run_leaves_no_byte_in_any_part_and_every_promise_holds_for_the_others(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digest_of_log, "RUNS", MANY)
    machine, rng = folded(seed, 250)
    promises = machine.promises
    folding: Folding = promises.folding
    erased: list[str] = []
    for run_id in rng.sample(MANY, 6):
        folding.append(erasure(run_id))
        promises.stories.pop(run_id, None)
        erased.append(run_id)
        if rng.random() < 0.5:
            folding.capture()
        for _ in range(25):
            drive(machine, rng)
        if rng.random() < 0.5:
            folding.crash()
        assert not set(erased) & set(folding.partition.run_ids())
        for key, value in folding.partition.parts().items():
            for name in erased:
                assert name.encode() + b"\0" not in key + b"\0", key
                assert not named(name, value), key
        assert {digest for digest, _ in folding.partition.erasures} == set(
            map(digest_of_id, erased)
        )
    folding.capture()
    folding.crash()
    folding.check_from_zero()


def named(run_id: str, value: bytes) -> bool:
    """Whether the bytes have the id, not only a longer one."""
    found = value.find(run_id.encode())
    return found >= 0 and not value[found + len(run_id) : found + len(run_id) + 1].isdigit()
