"""Membership, a broker that goes away, and queries over HTTP."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from tests.integration.engine.harness import Lab, flags, wait_for
from tests.integration.engine.tiny_fold import TinyFold

from dalsegno.ops.embedded import EmbeddedKafka
from dalsegno.schemas.partitioner import partition_for
from dalsegno.streams.engine.app import ExitCode
from dalsegno.streams.engine.verify import verify

pytestmark = pytest.mark.kafka


def transitions(lab: Lab) -> int:
    return sum(map(len, lab.ordered(lab.topics.transitions).values()))


def test_a_static_member_has_its_partitions_back_without_a_rebalance(lab: Lab) -> None:
    first = lab.engine(DALSEGNO_NAME="a", DALSEGNO_SESSION_TIMEOUT_MS="60000")
    second = lab.engine(DALSEGNO_NAME="b", DALSEGNO_SESSION_TIMEOUT_MS="60000")
    first.wait_ready(2)
    second.wait_ready(2)
    rebalances = second.said().count("partitions assigned")
    first.kill()
    first.restart()
    first.wait_ready(2)
    assert second.said().count("partitions assigned") == rebalances
    lab.send(flags(200, 20))
    wait_for("all", lambda: transitions(lab) == 200)


def test_leave_gives_a_static_members_place_up_at_once(lab: Lab) -> None:
    long = {"DALSEGNO_SESSION_TIMEOUT_MS": "60000", "DALSEGNO_LEAVE": "true"}
    first = lab.engine(DALSEGNO_NAME="a", **long)
    second = lab.engine(DALSEGNO_NAME="b", **long)
    first.wait_ready(2)
    second.wait_ready(2)
    assert first.term() == 0
    second.wait_ready(4)


def test_a_static_member_whose_place_is_gone_leaves_with_its_own_code(lab: Lab) -> None:
    env = {"DALSEGNO_SESSION_TIMEOUT_MS": "2000", "DALSEGNO_HEARTBEAT_INTERVAL_MS": "200"}
    first = lab.engine(DALSEGNO_NAME="a", **env)
    first.wait_ready()
    first.signal(signal.SIGSTOP)
    second = lab.engine(DALSEGNO_NAME="b", **env)
    second.wait_ready()
    first.signal(signal.SIGCONT)
    assert first.process.wait(60) == ExitCode.EVICTED


def test_group_offsets_follow_the_checkpoints(lab: Lab) -> None:
    engine = lab.engine(DALSEGNO_OFFSETS_INTERVAL_MS="200")
    engine.wait_ready()
    lab.send(flags(400, 40))
    admin = AdminClient({"bootstrap.servers": lab.bootstrap})

    def committed() -> bool:
        asked = admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(lab.settings.group)]
        )
        found = next(iter(asked.values())).result(10).topic_partitions
        ends = {number: lab.end(lab.topics.events, number) for number in range(lab.partitions)}
        return {place.partition: place.offset for place in found} == ends

    wait_for("group offsets at the end", committed)


def test_any_engine_answers_for_any_run_and_waits_for_what_was_just_sent(lab: Lab) -> None:
    first, second = lab.engine(), lab.engine()
    first.wait_ready(2)
    second.wait_ready(2)
    lab.send(flags(40, 40))
    for i in range(40):
        number = partition_for(f"run-{i}", lab.partitions)
        offset = lab.end(lab.topics.events, number) - 1
        for engine in (first, second):
            status, body = engine.get(f"/runs/run-{i}?min_offset={offset}&wait_ms=8000")
            assert status == 200, body
            assert isinstance(body, dict)
            assert body["position"] > offset
    assert first.get("/runs/nobody")[0] == 404
    assert first.get("/runs/run-0?min_offset=999999")[0] == 503
    assert first.get("/runs/run-0?min_offset=x")[0] == 400
    status, body = first.get("/partitions")
    assert status == 200
    assert isinstance(body, dict)
    assert len(body["owners"]) == lab.partitions
    status, body = first.get("/runs?limit=5")
    assert isinstance(body, dict)
    assert len(body["runs"]) == 5
    assert first.get("/runs?state=nonsense")[0] == 400
    metrics = first.text("/metrics")
    for name in ("lag_records", "partitions", "checkpoint_seconds", "event_loop_lag", "outputs"):
        assert f"dalsegno_{name}" in metrics


def test_a_lost_broker_is_waited_for_at_the_start_and_later(
    own_lab: tuple[Lab, EmbeddedKafka],
) -> None:
    lab, broker = own_lab
    broker.kill()
    engine = lab.engine()
    wait_for("alive without a broker", lambda: engine.get("/livez")[0] == 200)
    assert engine.get("/readyz")[0] == 503
    wait_for("it says so", lambda: "no broker yet" in engine.tail())
    broker.start()
    engine.wait_ready()
    lab.send(flags(300, 30))
    wait_for("before the loss", lambda: transitions(lab) == 300)
    for _ in range(2):
        broker.kill()
        time.sleep(2)  # longer than a poll, so that requests are caught under way
        broker.start()
    lab.send(flags(300, 30, 300))
    wait_for("after the loss", lambda: transitions(lab) == 600, limit_s=120)
    engine.wait_ready()
    assert engine.get("/livez")[0] == 200
    assert engine.term() == 0, engine.tail()
    for report in verify(lab.settings, TinyFold, lab.partitions):
        assert report.right, report.differences


def test_sigterm_while_waiting_for_a_broker_ends_at_once(tmp_path: Path) -> None:
    lab = Lab("127.0.0.1:1", "none", tmp_path)
    engine = lab.engine()
    wait_for("waiting", lambda: engine.get("/livez")[0] == 200)
    assert engine.term() == 0, engine.tail()
