"""A real HTTP service fails and returns under many runs, on a real Kafka; it counts arrivals."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import TypeVar

import pytest
from tests.integration.engine.harness import ROOT, EngineProcess, Lab, wait_for
from tests.integration.faults.called_flow import flow
from tests.integration.faults.service import Mode, Service, peak_per_second

from dalsegno.client import Client
from dalsegno.ops.kafka.fault_points import append_to_faults, read_point, steer
from dalsegno.schemas.codec import decode
from dalsegno.schemas.control import (
    BreakerState,
    ClockTick,
    Dependency,
    FaultPointChanged,
    HealthCheck,
    Policy,
    PolicySet,
    QuotaGranted,
)
from dalsegno.schemas.faults import HandAction, HealthReported
from dalsegno.schemas.outputs import FaultReport, RunState

pytestmark = pytest.mark.kafka

T = TypeVar("T")
RUNS = int(os.environ.get("DALSEGNO_TEST_RUNS", "300"))
SPAN_S = 0.05
AT_ONCE = 5
CAPACITY_PER_S = AT_ONCE / SPAN_S


class Called:
    """An engine, a worker, a client, and the service that the step calls."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.service = Service(SPAN_S, AT_ONCE)
        self.engine: EngineProcess = lab.engine(fold="served")
        self.engine.wait_ready()
        self.client = Client(bootstrap_servers=lab.bootstrap, prefix=lab.prefix)
        self.worker = self._worker()
        self.runs: list[str] = []

    def _worker(self) -> subprocess.Popen[bytes]:
        env = {
            **os.environ,
            "DALSEGNO_BOOTSTRAP_SERVERS": self.lab.bootstrap,
            "DALSEGNO_PREFIX": self.lab.prefix,
        }
        with (self.lab.folder / "worker.log").open("ab") as out:
            return subprocess.Popen(
                [
                    sys.executable, "-m", "tests.integration.faults.called_flow",
                    f"{self.lab.prefix}-w", self.service.url,
                ],
                cwd=ROOT, env=env, stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def start(self, count: int) -> None:
        first = len(self.runs)
        for number in range(first, first + count):
            self.runs.append(f"run-{number}")
            self.client.start(flow, {}, run_id=f"run-{number}")

    def served(self) -> int:
        return len(self.service.done)

    def wait_served(self, count: int, limit_s: float = 120.0) -> None:
        wait_for(f"{count} runs served", lambda: self.served() >= count, limit_s)

    def finish(self) -> None:
        results = [self.client.wait(run_id, "60s") for run_id in self.runs]
        assert {result.state for result in results} == {RunState.SUCCEEDED}
        assert set(self.service.done) == set(self.runs)

    def orders(self) -> list[FaultPointChanged | QuotaGranted]:
        return [
            event
            for partition in range(self.lab.partitions)
            for message in self.lab.read(self.lab.topics.events, partition)
            if isinstance(event := decode(message.value()), FaultPointChanged | QuotaGranted)
        ]

    def faults(self) -> list[object]:
        return [
            decode(message.value())
            for partition in range(self.lab.partitions)
            for message in self.lab.read(self.lab.topics.faults, partition)
        ]

    def found(self, kind: type[T]) -> list[T]:
        return [record for record in self.faults() if isinstance(record, kind)]

    def opened(self) -> bool:
        return any(
            isinstance(order, FaultPointChanged) and order.state is BreakerState.OPEN
            for order in self.orders()
        )

    def close(self) -> None:
        self.worker.kill()
        self.worker.wait(10)
        self.client.close()
        self.service.close()


@pytest.fixture
def called(lab: Lab) -> Iterator[Called]:
    made = Called(lab)
    yield made
    made.close()


def test_healthy_costs_no_hop_and_no_event(called: Called) -> None:
    called.start(20)
    called.finish()
    assert called.orders() == []
    said = called.faults()
    assert {type(record) for record in said} <= {ClockTick}
    assert len(said) <= called.lab.partitions


@pytest.mark.parametrize("mode", [Mode.REFUSE, Mode.HANG, Mode.BUSY])
def test_the_service_fails_and_returns_and_no_storm_meets_it(called: Called, mode: Mode) -> None:
    called.start(5)
    called.wait_served(5)
    called.service.mode = mode
    called.start(RUNS)
    wait_for("the breaker opens", called.opened, 60)
    waits = wait_for(
        "most runs wait",
        lambda: [report for report in called.found(FaultReport) if report.waiting > 20],
        60,
    )
    assert waits
    tried, back_s = called.service.tried, time.monotonic()
    called.service.mode = Mode.PASS
    called.wait_served(RUNS + 5)
    took_s = time.monotonic() - back_s
    called.finish()
    # Every run was served once: what failed had never reached the service.
    assert set(called.service.done.values()) == {1}
    assert called.service.tried - tried <= 1.05 * RUNS + 20
    found_s = min(at for at in called.service.arrivals if at >= back_s) - back_s
    peak = peak_per_second(called.service.arrivals, back_s)
    print(f"{mode}: {RUNS} runs in {took_s:.1f} s, peak {peak}/s, found after {found_s:.1f} s")
    assert found_s <= 6.0 + 2.0 + 5.0  # the longest pause, a probe that hangs, a loaded machine
    assert peak <= 1.5 * CAPACITY_PER_S


def test_the_engine_dies_during_an_outage_and_its_successor_goes_on(called: Called) -> None:
    called.service.mode = Mode.REFUSE
    called.start(60)
    wait_for("the breaker opens", called.opened, 60)
    called.engine.kill()
    called.engine.restart()
    called.service.mode = Mode.PASS
    called.wait_served(60)
    called.finish()
    assert set(called.service.done.values()) == {1}


def test_by_hand_it_is_held_open_and_let_go_again(called: Called) -> None:
    settings = called.lab.settings
    steer(settings, "validation", HandAction.OPEN, by="ada", reason="maintenance")
    wait_for("the breaker opens", called.opened, 60)
    called.start(30)
    wait_for("runs wait", lambda: read_point(settings, "validation").waiting == 30, 60)
    assert called.served() == 0
    steer(settings, "validation", HandAction.LIMIT, by="ada", reason="half is away", limit=2)
    steer(settings, "validation", HandAction.CLOSE, by="ada", reason="over")
    called.wait_served(30)
    called.finish()
    found = read_point(settings, "validation")
    assert [(hand.action, hand.decided_by, hand.reason) for hand in found.hands] == [
        ("open", "ada", "maintenance"), ("limit", "ada", "half is away"), ("close", "ada", "over"),
    ]  # fmt: skip
    assert found.size <= 2


def test_a_declared_health_check_comes_before_the_probe(called: Called) -> None:
    declared = Dependency(
        name="validation", check=HealthCheck.HTTP, target=f"{called.service.url}/health",
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
