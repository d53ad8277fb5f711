"""Fault points around a real HTTP service, on a real Kafka. Outages: `test_outages`."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from benchmarks.outage_lab.service import Mode, Service
from confluent_kafka import Producer
from tests.integration.engine.harness import Lab, wait_for
from tests.integration.faults.called import POINT, Called

from dalsegno.client import Context, DependencyDown, Flow
from dalsegno.ops.kafka.fault_points import append_to_faults, steer
from dalsegno.schemas.control import (
    ClockTick,
    Dependency,
    HealthCheck,
    Policy,
    PolicySet,
    QuotaGranted,
)
from dalsegno.schemas.faults import HandAction, HealthReported
from dalsegno.schemas.partitioner import partition_for
from dalsegno.streams.core.faultpoint.point import FaultPoint, Phase
from dalsegno.streams.core.state_codec import StateCorrupt
from dalsegno.streams.engine.verify_faults import verify_faults

pytestmark = pytest.mark.kafka


@pytest.fixture
def called(lab: Lab) -> Iterator[Called]:
    made = Called(lab, Service())
    yield made
    made.close()


def test_healthy_costs_no_hop_and_no_event(called: Called) -> None:
    called.start(20)
    called.finish()
    assert called.orders() == []
    said = called.faults()
    assert {type(record) for record in said} <= {ClockTick}
    assert len(said) <= called.lab.partitions


def test_the_engine_dies_during_an_outage_and_its_successor_goes_on(called: Called) -> None:
    called.service.mode = Mode.REFUSE
    called.start(60)
    wait_for("the breaker opens", called.opened, 60)
    called.engine.kill()
    called.engine.restart()
    called.service.mode = Mode.PASS
    called.wait_served(60)
    called.finish()
    called.wait_phase(Phase.HEALTHY)
    assert called.engine.term() == 0
    lab = called.lab
    found = list(verify_faults(lab.settings, lab.partitions))
    assert [line for report in found for line in report.differences] == []
    assert sum(report.events for report in found) > 10
    home = partition_for(POINT, lab.partitions)
    changelog = Producer({"bootstrap.servers": lab.bootstrap})
    changelog.produce(lab.topics.faults_changelog, b"other", b"f" + POINT.encode(), partition=home)
    assert changelog.flush(20) == 0
    with pytest.raises(StateCorrupt):
        list(verify_faults(lab.settings, lab.partitions))
    open_now = msgspec.msgpack.encode(FaultPoint(name=POINT, phase=Phase.OPEN))
    changelog.produce(lab.topics.faults_changelog, open_now, b"f" + POINT.encode(), partition=home)
    assert changelog.flush(20) == 0
    wrong = {report.partition: report.differences for report in verify_faults(lab.settings, 4)}
    assert [number for number, lines in wrong.items() if lines] == [home]


def test_by_hand_it_is_held_open_and_let_go_again(called: Called) -> None:
    settings = called.lab.settings
    steer(settings, POINT, HandAction.OPEN, by="ada", reason="maintenance")
    wait_for("the breaker opens", called.opened_everywhere, 60)
    called.start(30)
    called.wait_waiting(30)
    assert called.served() == 0
    steer(settings, POINT, HandAction.LIMIT, by="ada", reason="half is away", limit=2)
    steer(settings, POINT, HandAction.CLOSE, by="ada", reason="over")
    called.wait_served(30)
    called.finish()
    found = called.wait_point("all three are on record", lambda it: len(it.hands) == 3)
    assert [(hand.action, hand.decided_by, hand.reason) for hand in found.hands] == [
        ("open", "ada", "maintenance"), ("limit", "ada", "half is away"), ("close", "ada", "over"),
    ]  # fmt: skip
    assert found.size <= 2


def test_a_declared_health_check_comes_before_the_probe(called: Called) -> None:
    declared = Dependency(
        name=POINT, check=HealthCheck.HTTP, target=f"{called.service.url}/health",
        interval_ms=200,
    )  # fmt: skip
    policy = Policy(dependencies=(declared,))
    for partition in range(called.lab.partitions):
        control = PolicySet(partition=partition, number=1, policy=policy)
        append_to_faults(called.lab.settings, control)
    called.service.mode = Mode.REFUSE
    called.start(30)
    wait_for("the breaker opens", called.opened, 60)
    wait_for("checks fail", lambda: len(called.found(HealthReported)) > 3, 60)
    assert not any(report.healthy for report in called.found(HealthReported))
    assert not any(isinstance(order, QuotaGranted) for order in called.orders())
    called.service.mode = Mode.PASS
    called.wait_served(30)
    called.finish()
    assert called.service.health_checks > 0


def test_a_service_that_drives_itself_is_told_what_is_away_and_its_failures_count(
    called: Called,
) -> None:
    client = called.client
    assert client.may_call(POINT, timeout="30s")
    own = Flow("own", version=1, ttl="10m", queue="")

    @own.step(writes=["answer"], depends_on=[POINT])
    def call(_ctx: Context) -> dict[str, object]:
        raise AssertionError("a service of its own runs it")

    reports = [client.report(client.start(own, {}, run_id=f"own-{n}")) for n in range(6)]
    for report in reports[:5]:
        report.started("call")
        report.failed("call", DependencyDown(POINT))
    assert called.wait_phase(Phase.HALF_OPEN).failures == 5
    # Nobody waits: it may try, and its success is the probe's.
    wait_for("it is told to try", lambda: client.may_call(POINT), 30, every_s=1.0)
    with reports[5] as report:
        report.started("call")
        report.completed("call", {"answer": "done"})
    assert called.wait_phase(Phase.RAMPING, Phase.HEALTHY).successes == 1
    settings = called.lab.settings
    steer(settings, POINT, HandAction.OPEN, by="ada", reason="maintenance")
    wait_for("it is told not to call", lambda: not client.may_call(POINT), 30, every_s=1.0)
    assert client.may_call("something else", timeout="30s")
    steer(settings, POINT, HandAction.CLOSE, by="ada", reason="over")
    wait_for("it is told to call again", lambda: client.may_call(POINT), 30, every_s=1.0)
