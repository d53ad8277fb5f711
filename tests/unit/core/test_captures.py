"""What captures leave behind is the state: a restore at any cut goes on as if nothing had been."""

from __future__ import annotations

import msgspec
import pytest

from dalsegno.schemas.events import (
    InformationSupplied,
    RunEvent,
    RunStarted,
    StepCompleted,
    StepStarted,
)
from dalsegno.schemas.plan import Plan, StepPlan
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.record import Record

pack = msgspec.msgpack.encode


def step(name: str, needs: tuple[str, ...], reads: tuple[str, ...]) -> StepPlan:
    return StepPlan(name=name, needs=needs, reads=reads, writes=(f"{name}_out",), queue="default")


EVENTS: tuple[RunEvent, ...] = (
    InformationSupplied(
        run_id="r", information_id="i", ops=pack([["set", ["note"], 1]]), origin="client"
    ),
    RunStarted(
        run_id="r",
        flow="f",
        flow_version=1,
        plan=Plan(steps=(step("a", (), ("x",)), step("b", ("a",), ("x", "a_out", "note")))),
        context=pack({"x": 1}),
        ttl_ms=10_000_000,
    ),
    StepStarted(run_id="r", step="a", epoch=1, worker="w"),
    StepCompleted(run_id="r", step="a", epoch=1, ops=pack([["set", ["a_out"], "v"]])),
    StepStarted(run_id="r", step="b", epoch=1, worker="w"),
    StepCompleted(run_id="r", step="b", epoch=1, ops=pack([["set", ["b_out"], "v"]])),
)


def record(offset: int) -> Record:
    return Record(offset, 1_000_000 + offset, b"r", b"", EVENTS[offset])


@pytest.mark.parametrize("cut", range(len(EVENTS)))
@pytest.mark.parametrize("every", [1, 2, 3])
def test_the_sum_of_captures_is_the_state_and_a_restore_goes_on(cut: int, every: int) -> None:
    straight, kept = Partition(0), Partition(0)
    changelog: dict[bytes, bytes] = {}
    for offset in range(len(EVENTS)):
        assert kept.apply(record(offset)) == straight.apply(record(offset))
        if offset % every == 0 or offset == cut:
            for key, value in kept.capture():
                if value is None:
                    changelog.pop(key, None)
                else:
                    changelog[key] = value
            assert changelog == straight.parts()
        if offset == cut:
            kept = Partition.restore(0, changelog.items())
    assert kept.digest() == straight.digest()
