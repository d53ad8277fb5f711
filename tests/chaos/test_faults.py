"""Faults of brokers, engines, disks, clocks and S3 under load. After each the whole log is judged.

A verdict's `broken` names whatever a promise rules out: an acknowledged start that is not in the
log, an event without exactly one outcome (P1), a state that is not the fold of the log (P2), a gap
in an output or a repeat with other bytes (P3), a step that ran after its end (P4), a run that did
not end (P6), an effect done twice in the ledgers.
"""

from __future__ import annotations

import json
import shlex
import time

import pytest
from tests.chaos.load import Bench
from tests.chaos.stack import ENGINES, ROOT, SLOW_S, container, docker
from tests.integration.engine.harness import wait_for

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1_800)]

SKEW_S = 600.0
FAILURES = "sum(dalsegno_archive_failures_total)"


def test_nothing_is_lost_or_done_twice_while_all_is_well(bench: Bench) -> None:
    with bench.under_load("none") as load, load.fault():
        load.more(20)
    assert bench.judge(load).broken == []


def test_the_command_in_the_compose_file_runs_an_application_to_its_end(bench: Bench) -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    line = next(line for line in text.splitlines() if "dalsegno start" in line)
    command = shlex.split(line.partition(" exec ")[2].replace("a-1", f"a-{time.time_ns()}"))
    assert ": succeeded" in bench.stack.run(*command, limit_s=120)


def test_prometheus_scrapes_both_engines_and_knows_the_alerts(bench: Bench) -> None:
    stack = bench.stack
    check = ("promtool", "check", "config", "/etc/prometheus/prometheus.yml")
    assert "SUCCESS" in stack.run("prometheus", *check)

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


def test_engines_keep_nothing_on_a_disk(bench: Bench) -> None:
    for engine in ENGINES:
        host = json.loads(docker("inspect", "-f", "{{json .HostConfig}}", container(engine)))
        assert host["ReadonlyRootfs"] is True
        assert not host.get("Binds")
        assert not host.get("Tmpfs")
    left = bench.stack.run("disk", "find", "/engine1", "-mindepth", "1")
    assert left == ""


def test_nothing_is_lost_or_done_twice_when_a_broker_is_killed(bench: Bench) -> None:
    stack = bench.stack
    with bench.under_load("broker killed") as load:
        with load.fault():
            stack.kill("kafka2")
            stack.wait_replicas("missed")
            load.more(10)
            stack.start("kafka2")
        load.wait_whole()
    assert bench.judge(load).broken == []


def test_nothing_is_lost_or_done_twice_when_a_broker_is_cut_off(bench: Bench) -> None:
    stack = bench.stack
    with bench.under_load("broker cut off") as load:
        with load.fault():
            stack.cut("kafka3")
            stack.wait_replicas("missed")
            load.more(10)
            stack.rejoin("kafka3")
        load.wait_whole()
    assert bench.judge(load).broken == []


def test_nothing_is_lost_or_done_twice_when_a_brokers_disk_is_full(bench: Bench) -> None:
    stack = bench.stack
    with bench.under_load("broker's disk full") as load:
        with load.fault():
            stack.fill("kafka1")
            wait_for("the broker gives up", lambda: not stack.running("kafka1"), SLOW_S)
            stack.wait_replicas("missed")
            load.more(10)
            stack.free("kafka1")
            stack.restart("kafka1")
        load.wait_whole()
    assert bench.judge(load).broken == []


def test_an_engine_paused_past_its_session_does_nothing_when_it_wakes(bench: Bench) -> None:
    stack = bench.stack
    with bench.under_load("engine paused past its session") as load:
        with load.fault():
            stack.pause("engine1")
            stack.wait_ready("engine2")
            load.more(10)
            stack.unpause("engine1")
        load.wait_whole()
    assert bench.judge(load).broken == []


def test_nothing_is_lost_or_done_twice_when_an_engine_is_killed(bench: Bench) -> None:
    stack = bench.stack
    with bench.under_load("engine killed") as load:
        with load.fault():
            stack.kill("engine2")
            load.more(5)
            stack.start("engine2")
        load.wait_whole()
    assert bench.judge(load).broken == []


def test_an_engine_whose_disk_is_full_works_and_starts(bench: Bench) -> None:
    stack = bench.stack
    with bench.under_load("engine's disk full") as load, load.fault():
        stack.fill("engine1")
        full = stack.run("engine1", "sh", "-c", "echo 1 2>/dev/null > /tmp/more || echo refused")
        assert full.strip() == "refused"
        load.more(5)
        stack.restart("engine1")
        load.wait_whole()
        load.more(5)
        stack.free("engine1")
    assert bench.judge(load).broken == []


def test_intake_goes_on_while_s3_is_cut_off(bench: Bench) -> None:
    stack = bench.stack
    with bench.under_load("S3 cut off") as load:
        with load.fault():
            before = stack.asked(FAILURES)
            stack.cut("s3")
            wait_for("failures", lambda: stack.asked(FAILURES) > before, SLOW_S)
            load.more(20)
            stack.rejoin("s3")
        load.wait_whole()
    assert bench.judge(load).broken == []
    _wait_archived(bench)


def test_intake_goes_on_while_the_disk_of_s3_is_full(bench: Bench) -> None:
    stack = bench.stack
    with bench.under_load("S3's disk full") as load:
        with load.fault():
            before = stack.asked(FAILURES)
            stack.fill("s3")
            wait_for("failures", lambda: stack.asked(FAILURES) > before, SLOW_S)
            load.more(20)
            stack.free("s3")
            stack.restart("s3")
        load.wait_whole()
    assert bench.judge(load).broken == []
    _wait_archived(bench)


def _wait_archived(bench: Bench) -> None:
    """Until the bucket has all events but the archive's own last word; then it is read whole."""
    query = "max(dalsegno_archive_backlog_events)"
    scraped = "count(dalsegno_archive_backlog_events)"
    wait_for(
        "all is archived",
        lambda: bench.stack.asked(scraped) > 0 and bench.stack.asked(query) <= 1,
        SLOW_S,
    )
    done = json.loads(
        bench.stack.run("engine1", "dalsegno", "archive", "verify", "--json", limit_s=120)
    )
    assert done["faults"] == []
    assert done["segments"] > 0


def test_clocks_of_producers_ten_minutes_off_decide_nothing(bench: Bench) -> None:
    stack = bench.stack
    skew = {"LD_PRELOAD": "/opt/skew.so", "SKEW_FILE": "/chaos/skew"}
    stack.set_clock("skew", SKEW_S)
    try:
        with bench.under_load("clocks 10 min off", **skew) as load, load.fault():
            stack.set_clock("skew-worker2", -SKEW_S)
            load.more(20)
            stack.set_clock("skew-worker2", SKEW_S)
            load.more(20)
    finally:
        stack.set_clock("skew-worker2", 0.0)
        stack.set_clock("skew", 0.0)
    assert bench.judge(load).broken == []
