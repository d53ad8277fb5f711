"""Heartbeats are merged, never queued; the lease ends what they no longer cover."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.unit.client.fakes import attempt

from dalsegno.schemas import codec
from dalsegno.schemas.liveness import Heartbeat
from dalsegno.streams.client.attempt import Attempt
from dalsegno.streams.client.clocks import Clocks
from dalsegno.streams.client.errors import DeliveryFailed
from dalsegno.streams.client.heartbeats import Heartbeats
from dalsegno.streams.client.holding import Holding
from dalsegno.streams.client.producer import Done, OutRecord, Receipt


@dataclass
class Lab:
    """Time moves by hand; sent records wait for the test to acknowledge them."""

    now_s: float = 100.0
    holding: Holding = field(default_factory=lambda: Holding(100))
    sent: list[tuple[OutRecord, Done]] = field(default_factory=list)
    lost: list[tuple[list[str], bool]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.heartbeats = Heartbeats(
            self,  # type: ignore[arg-type]
            "heartbeats",
            self.holding,
            self.on_lost,
            worker="w",
            incarnation=7,
            interval_s=1.0,
            lease_s=8.0,
            clocks=Clocks(lease_s=lambda: self.now_s, wall_ms=lambda: 5),
        )

    def send(self, record: OutRecord, done: Done) -> None:
        self.sent.append((record, done))

    def on_lost(self, attempts: Sequence[Attempt], everything: bool) -> None:
        self.lost.append(([a.handoff.run_id for a in attempts], everything))

    def hold(self, run_id: str, partition: int = 0) -> Attempt:
        held = attempt(run_id=run_id)
        held.partition = partition
        held.started_sent_s = self.now_s
        assert self.holding.reserve(1) == 1
        self.holding.add(held)
        return held

    def tick(self, seconds: float = 1.0) -> None:
        self.now_s += seconds
        self.heartbeats.tick()

    def acknowledge(self) -> None:
        for record, done in self.sent:
            done(Receipt(record.topic, record.partition, 0, 0), None)
        self.sent.clear()

    def records(self) -> list[Heartbeat]:
        found = [codec.decode(record.value) for record, _ in self.sent]
        return [each for each in found if isinstance(each, Heartbeat)]


def test_one_record_per_partition_tells_all_that_is_held_of_it() -> None:
    lab = Lab()
    lab.hold("a").progress = 4
    lab.hold("b")
    lab.hold("c", partition=3)
    lab.tick()
    first, second = lab.records()
    assert [(h.run_id, h.progress) for h in first.held] == [("a", 4), ("b", 0)]
    assert (first.partition, first.worker, first.incarnation) == (0, "w", 7)
    assert [h.run_id for h in second.held] == ["c"]
    assert [record.partition for record, _ in lab.sent] == [0, 3]


def test_nothing_held_nothing_sent() -> None:
    lab = Lab()
    lab.tick()
    assert lab.sent == []


def test_while_one_is_on_its_way_further_ones_are_merged() -> None:
    lab = Lab()
    held = lab.hold("a")
    for _ in range(5):
        held.progress += 1
        lab.tick()
    assert len(lab.sent) == 1
    lab.acknowledge()
    lab.tick()
    assert lab.records()[0].held[0].progress == 5


def test_the_lease_counts_from_when_the_acknowledged_heartbeat_was_sent() -> None:
    lab = Lab()
    held = lab.hold("a")
    lab.tick()  # sent at 101
    lab.now_s = 108.0
    lab.acknowledge()
    assert lab.heartbeats.lease_holds(held)
    lab.now_s = 109.5
    assert not lab.heartbeats.lease_holds(held)


def test_without_acknowledgements_everything_is_abandoned() -> None:
    lab = Lab()
    lab.hold("a")
    for _ in range(8):
        lab.tick()
    assert lab.lost == []
    lab.tick()
    assert lab.lost == [(["a"], True)]


def test_one_partition_without_acknowledgements_costs_only_itself() -> None:
    lab = Lab()
    lab.hold("a", partition=0)
    lab.hold("b", partition=1)
    for _ in range(9):
        lab.tick()
        for record, done in lab.sent:
            if record.partition == 1:
                done(Receipt(record.topic, 1, 0, 0), None)
    assert lab.lost == [(["a"], False)]


def test_a_process_that_stood_still_abandons_everything_before_it_sends_again() -> None:
    lab = Lab()
    lab.hold("a")
    lab.tick()
    lab.acknowledge()
    lab.hold("b")
    lab.tick(60.0)
    assert lab.lost == [(["a", "b"], True)]
    assert lab.sent == []


def test_a_lost_heartbeat_is_followed_by_the_next() -> None:
    lab = Lab()
    lab.hold("a")
    lab.tick()
    record, done = lab.sent.pop()
    done(None, DeliveryFailed(record.topic, record.key, "_MSG_TIMED_OUT", ""))
    lab.tick()
    assert len(lab.sent) == 1
