"""Faults of brokers, engines, disks and clocks under load; after each, the log is judged.

Nothing acknowledged is lost, the state is the fold of the log, outputs have no gap, repeats are
byte-identical, no step runs after its end, no effect is done twice.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.chaos.load import Bench, Row
from tests.chaos.stack import container, docker
from tests.integration.engine.harness import wait_for

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1_800)]

SLOW_S = 240.0
SKEW_S = 600.0


@contextmanager
def lasting(row: Row) -> Iterator[None]:
    begun = time.monotonic()
    yield
    row.lasted_s = time.monotonic() - begun


def wait_whole(bench: Bench, row: Row) -> None:
    """Until all replicas are in sync and both engines own their partitions again."""
    begun = time.monotonic()
    wait_for("all replicas in sync", lambda: bench.stack.lagging() == 0, SLOW_S)
    bench.stack.wait_ready()
    row.back_s = time.monotonic() - begun


def test_without_a_fault(bench: Bench) -> None:
    with bench.under_load("none") as (load, row), lasting(row):
        load.more(20)


def test_prometheus_scrapes_both_engines_and_knows_the_alerts(bench: Bench) -> None:
    stack = bench.stack
    check = ("promtool", "check", "config", "/etc/prometheus/prometheus.yml")
    assert "SUCCESS" in stack.compose("exec", "-T", "prometheus", *check)

    def scraped() -> bool:
        answer = stack.fetch("http://prometheus:9090/api/v1/query?query=up")
        found = answer.get("data", {}).get("result", [])  # type: ignore[attr-defined]
        up = {each["metric"]["instance"] for each in found if each["value"][1] == "1"}
        return up == {"engine1:8470", "engine2:8470"}

    wait_for("both engines scraped", scraped, SLOW_S)
    groups = stack.fetch("http://prometheus:9090/api/v1/rules")["data"]["groups"]  # type: ignore[index]
    rules = [rule for group in groups for rule in group["rules"]]
    assert rules
    assert {rule["health"] for rule in rules} <= {"ok", "unknown"}, rules


def test_engines_need_no_disk(bench: Bench) -> None:
    for engine in ("engine1", "engine2"):
        host = json.loads(docker("inspect", "-f", "{{json .HostConfig}}", container(engine)))
        assert host["ReadonlyRootfs"] is True
        assert not host.get("Binds")
        assert not host.get("Tmpfs")


def test_a_broker_is_killed_and_comes_back(bench: Bench) -> None:
    with bench.under_load("broker killed") as (load, row):
        with lasting(row):
            bench.stack.compose("kill", "-s", "KILL", "kafka2")
            wait_for("its replicas are missed", lambda: bench.stack.lagging() > 0, SLOW_S)
            load.more(10)
            bench.stack.start("kafka2")
        wait_whole(bench, row)


def test_a_broker_is_cut_off_the_network(bench: Bench) -> None:
    with bench.under_load("broker cut off") as (load, row):
        with lasting(row):
            bench.stack.cut("kafka3")
            wait_for("its replicas are missed", lambda: bench.stack.lagging() > 0, SLOW_S)
            load.more(10)
            bench.stack.rejoin("kafka3")
        wait_whole(bench, row)


def test_an_engine_is_paused_past_its_session_and_woken(bench: Bench) -> None:
    with bench.under_load("engine paused past its session") as (load, row):
        with lasting(row):
            bench.stack.compose("pause", "engine1")
            wait_for("the other has all", lambda: bench.stack.owned("engine2") == 8, SLOW_S)
            load.more(10)
            bench.stack.compose("unpause", "engine1")
        wait_whole(bench, row)


def test_an_engine_is_killed_and_restarted(bench: Bench) -> None:
    with bench.under_load("engine killed") as (load, row):
        with lasting(row):
            bench.stack.compose("kill", "-s", "KILL", "engine2")
            load.more(5)
            bench.stack.start("engine2")
        wait_whole(bench, row)


def test_a_brokers_disk_is_full(bench: Bench) -> None:
    stack = bench.stack
    with bench.under_load("broker's disk full") as (load, row):
        with lasting(row):
            fill = "head -c 1G /dev/zero > /disk/fill; true"
            stack.compose("exec", "-T", "disk", "bash", "-c", fill)
            wait_for("the broker gives up", lambda: not stack.running("kafka1"), SLOW_S)
            wait_for("its replicas are missed", lambda: stack.lagging() > 0, SLOW_S)
            load.more(10)
            stack.compose("exec", "-T", "disk", "rm", "/disk/fill")
            docker("restart", container("kafka1"))
        wait_whole(bench, row)


def test_clocks_of_producers_are_ten_minutes_off(bench: Bench) -> None:
    stack = bench.stack
    skew = {"LD_PRELOAD": "/opt/skew.so", "SKEW_FILE": "/chaos/skew"}
    stack.set_clock("skew", SKEW_S)
    try:
        with bench.under_load("clocks 10 min off", **skew) as (load, row), lasting(row):
            stack.set_clock("skew-worker2", -SKEW_S)
            load.more(20)
            stack.set_clock("skew-worker2", SKEW_S)
            load.more(20)
    finally:
        stack.set_clock("skew-worker2", 0.0)
        stack.set_clock("skew", 0.0)
