"""What a chain takes does not grow with its run, nor with what stays the same in it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec
import pytest
from tests.unit.core.shelf import Shelf

from dalsegno.schemas.control import ControlEvent
from dalsegno.schemas.events import (
    FailureType,
    InformationSupplied,
    RunEvent,
    RunStarted,
    StepFailed,
    StepStarted,
)
from dalsegno.schemas.plan import Plan, StepPlan
from dalsegno.storage.memory import MemoryTable
from dalsegno.storage.snapshots import store
from dalsegno.storage.snapshots.link import LinkKind, read_link
from dalsegno.storage.snapshots.pace import Pace
from dalsegno.storage.snapshots.recorder import Recorder
from dalsegno.storage.warm import Place, WarmStore
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.record import Record
from dalsegno.streams.engine.warm_snapshots import left_in

KEEP = 8
BLOB = Random(7).randbytes(125 << 10)
pack = msgspec.msgpack.encode
PLAN = Plan(steps=(StepPlan(name="a", queue="default", timeout_ms=60_000),))


class Interrupted(MemoryTable):
    """`between`: called once, `pages` scans from now."""

    def __init__(self) -> None:
        super().__init__()
        self.between: Callable[[], None] | None = None
        self.pages = 0

    def scan(self, first: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        found = super().scan(first, end, limit)
        self.pages -= 1
        if self.between is not None and self.pages == 0:
            self.between()
        return found


class Chain:
    """One run that gets facts, each of them a link."""

    def __init__(self, first: dict[str, object]) -> None:
        self.table = Interrupted()
        self.store = WarmStore(self.table, "cluster/topic/0")
        self.partition = Partition.open(0, self.store)
        self.partition.versions.keep()
        self.pace = Pace(versions_max=1)
        self.recorder = Recorder(self.store.chains, self.store.load, self.pace, keep=KEEP)
        self.offset = 0
        self.put(RunStarted(run_id="r", flow="f", flow_version=1, plan=PLAN, context=pack(first)))

    def put(self, event: RunEvent | ControlEvent) -> None:
        self.partition.apply(Record(self.offset, 1_700_000_000_000, b"r", b"", event))
        self.offset += 1
        parts = dict(self.partition.capture())
        self.store.put(parts, Place(self.offset, 0))
        self.recorder.note(self.partition.versions.drain())
        for run_id in left_in(parts):
            self.recorder.forget(run_id)
        self.recorder.write(10.0)

    def change(self, *ops: list[object]) -> None:
        name = str(self.offset)
        self.put(InformationSupplied(run_id="r", information_id=name, ops=pack(ops), origin="test"))

    @property
    def links(self) -> list[bytes]:
        return list(self.store.chains.links("r").values())


def test_what_is_in_every_snapshot_is_stored_once_for_each_base_that_is_kept() -> None:
    chain = Chain({"prompt": BLOB, "n": 0})
    for number in range(500):
        chain.change(["set", ["n"], number])
    links = chain.links
    bases = [link for link in links if read_link("r", link).header.kind is LinkKind.BASE]
    assert len(links) <= 2 * KEEP
    assert len(bases) == 1
    assert sum(map(len, links)) < len(BLOB) + 500 * len(links)
    written = chain.recorder.told().bytes
    assert sum(written.values()) < 12 * len(BLOB), "500 whole snapshots would be 500 of them"
    whose = chain.partition.versions.whose("r")
    assert whose is not None
    found = chain.recorder.look(whose, 501, []).past
    assert found is not None
    assert msgspec.msgpack.decode(found.context) == {"n": 499, "prompt": BLOB}


@pytest.mark.parametrize("steps", [300, 900])
def test_a_chain_stays_bounded_however_long_its_run_is(steps: int) -> None:
    random = Random(3)
    chain = Chain({"log": []})
    largest = 0
    for number in range(steps):
        note = random.randbytes(40).hex()
        ops: list[list[object]] = [["app", ["log"], [note]]]
        if number % 50 == 49:
            ops = [["set", ["log"], []]]
        chain.change(*ops)
        largest = max(largest, sum(map(len, chain.links)))
    assert len(chain.links) <= 2 * KEEP
    assert largest < 20_000


def test_a_chain_that_is_pruned_while_it_is_read_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store, "_PAGE", 3)
    chain = Chain({"prompt": BLOB, "n": 0})
    while len(chain.links) < 2 * KEEP:
        chain.change(["set", ["n"], chain.offset])
    whose = chain.partition.versions.whose("r")
    assert whose is not None
    before = len(chain.links)
    chain.table.pages = before // 3 - 1  # among the links that stay
    chain.table.between = lambda: chain.change(["set", ["n"], chain.offset])
    found = chain.recorder.look(whose, whose.newest, [])
    assert len(chain.links) < before, "it was pruned meanwhile"
    assert found.faults == ()
    assert found.past is not None
    assert msgspec.msgpack.decode(found.past.context) == {"n": whose.newest - 1, "prompt": BLOB}


def test_a_run_that_was_in_the_archive_begins_its_chain_anew() -> None:
    chain, shelf = Chain({"n": 0}), Shelf()
    for number in range(3):
        chain.change(["set", ["n"], number])
    attempt = {"run_id": "r", "step": "a", "epoch": 1}
    chain.put(StepStarted(**attempt, worker="w", incarnation=1))
    chain.put(StepFailed(**attempt, failure_type=FailureType.PERMANENT))
    residence = chain.partition.residence
    assert residence is not None
    residence.stored(residence.captures, 0)
    assert chain.links
    event = shelf.choose(chain.partition, "r")
    assert event is not None
    chain.put(event)
    assert chain.links == []
    chain.put(shelf.bring(chain.partition, "r"))
    chain.change(["set", ["n"], 7])
    whose = chain.partition.versions.whose("r")
    assert whose is not None
    assert [read_link("r", link).header.kind for link in chain.links] == [LinkKind.BASE]
    found = chain.recorder.look(whose, whose.newest, [])
    assert found.faults == ()
    assert found.past is not None
    assert msgspec.msgpack.decode(found.past.context) == {"n": 7}
    assert chain.recorder.look(whose, 2, []).past is None


def test_a_fault_of_ours_costs_a_run_its_chain_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chain = Chain({"n": 0})
    assert len(chain.links) == 1

    def extend(*_: object) -> None:
        raise KeyError("a fault of ours")

    with monkeypatch.context() as faulty:
        faulty.setattr("dalsegno.storage.snapshots.recorder.Extending.extend", extend)
        chain.change(["set", ["n"], 1])
    assert chain.links == []
    assert "a fault of ours" in chain.recorder.told().broken[0]
    chain.change(["set", ["n"], 2])
    assert len(chain.links) == 1
