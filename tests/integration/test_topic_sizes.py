"""A topic is set to take less than the engine writes, while it runs: its partitions wait."""

from __future__ import annotations

import json

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from tests.integration.engine.harness import EngineProcess, Lab, metric, wait_for

from dalsegno.client import Client, Flow
from dalsegno.ops.kafka.writer import Writer
from dalsegno.schemas.codec import decode
from dalsegno.schemas.control import Policy, PolicySet
from dalsegno.schemas.outputs import Handoff
from dalsegno.schemas.partitioner import partition_for
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.engine.topics_admin import TopicAdmin
from dalsegno.streams.engine.verify import verify

pytestmark = pytest.mark.kafka
PARTITIONS = 2
SMALL = "100"
LARGE_BYTES = 3_000_000
REBUILDS = "dalsegno_partition_rebuilds_total"
LOOKS = "dalsegno_event_loop_lag_seconds_count"
LOOKS_ENOUGH = 60
"""Ten in a second: a partition that began again instead of waiting would have done so some times.
"""
FLOW = Flow("sizes", version=1, ttl="30m")


@FLOW.step(timeout="10m")
def wait_for_nobody() -> None:
    """No worker runs: a handoff and a transition are all that comes of it."""


LARGE = Flow("large", version=1, ttl="30m")


@LARGE.step(reads=["one", "two"], timeout="10m")
def wait_with_large_inputs() -> None:
    """Its handoff is larger than an event may be."""


def lower(lab: Lab, topic: str) -> None:
    set_size(lab, topic, SMALL)


def set_size(lab: Lab, topic: str, size: str) -> None:
    entry = ConfigEntry("max.message.bytes", size, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    client = AdminClient({"bootstrap.servers": lab.bootstrap})
    for future in client.incremental_alter_configs([resource]).values():
        future.result(10)


def make_room(lab: Lab) -> None:
    for topic in (lab.topics.queue("default"), lab.topics.control):
        set_size(lab, topic, str(2 * LARGE_BYTES))


def set_policy(lab: Lab) -> None:
    policy = Policy(dispatch_bytes_max=LARGE_BYTES, inline_bytes_max=LARGE_BYTES)
    Writer(lab.settings).append_control(PolicySet(partition=0, number=1, policy=policy))


def start_runs(lab: Lab, partition: int, count: int) -> list[str]:
    names = (f"sizes-{number}" for number in range(100_000))
    runs = [name for name in names if partition_for(name, lab.partitions) == partition][:count]
    with Client(bootstrap_servers=lab.bootstrap, prefix=lab.prefix) as client:
        return client.start_many(FLOW, {run: {} for run in runs})


def waiting_for(engine: EngineProcess, topic: str) -> bool:
    status, body = engine.get("/readyz")
    return status == 503 and f"{topic}: max.message.bytes is {SMALL}, not" in json.dumps(body)


@pytest.mark.parametrize("which", ["queue", "transitions", "runs_changelog"])
def test_a_topic_that_takes_too_little_is_named_waited_for_and_holds_up_nobody_else(
    lab: Lab, which: str
) -> None:
    topics = lab.topics
    topic = topics.queue("default") if which == "queue" else getattr(topics, which)
    engine = lab.engine(fold="core", DALSEGNO_METADATA_AGE_MAX_MS="500")
    engine.wait_ready()
    lower(lab, topic)
    runs = start_runs(lab, 0, 5)
    wait_for("the cause", lambda: waiting_for(engine, topic))
    assert "dalsegno topics create" in json.dumps(engine.get("/readyz")[1])
    before = metric(engine, REBUILDS)
    if which != "runs_changelog":  # which the other one writes to as well
        lab.send_raw(1, b"key", b"not an event")
        lab.flush()
        wait_for("the other partition", lambda: lab.read(topics.dead_letters, 1))
    looks = metric(engine, LOOKS)
    wait_for("time to begin again", lambda: metric(engine, LOOKS) >= looks + LOOKS_ENOUGH)
    # The other one may fail once, by a connection that they share, or by its own checkpoint.
    assert metric(engine, REBUILDS) <= before + 1
    TopicAdmin(lab.settings).create()
    engine.wait_ready()
    wait_for("the runs", lambda: engine.get(f"/runs/{runs[-1]}")[0] == 200)
    engine.wait_caught_up()
    assert engine.term() == 0
    given = lab.ordered(topics.queue("default"))[0]
    assert [message.key() for _, message in given] == [run.encode() for run in runs]
    assert all(message.value() for _, message in given)
    for report in verify(lab.settings, Partition, lab.partitions):
        assert report.right, report.differences


@pytest.mark.parametrize("first", ["room", "policy"])
def test_a_handoff_larger_than_topics_took_at_the_start_goes_once_they_take_it(
    lab: Lab, first: str
) -> None:
    """Nothing leaves without its value, though the engine has looked at the topics long ago."""
    engine = lab.engine(fold="core", DALSEGNO_METADATA_AGE_MAX_MS="500")
    engine.wait_ready()
    topic = lab.topics.queue("default")
    if first == "room":
        make_room(lab)
    set_policy(lab)
    run = next(f"large-{n}" for n in range(1_000) if partition_for(f"large-{n}", PARTITIONS) == 0)
    with Client(bootstrap_servers=lab.bootstrap, prefix=lab.prefix) as client:
        client.start(LARGE, {"one": "x" * 900_000}, run_id=run)
        client.supply(run, {"two": "y" * 900_000}, origin="test")
    if first == "policy":
        wait_for("the cause", lambda: f"{topic} takes" in json.dumps(engine.get("/readyz")[1]))
        make_room(lab)
    wait_for("the handoff", lambda: lab.read(topic, 0))
    (message,) = lab.read(topic, 0)
    handoff = decode(message.value() or b"")
    assert isinstance(handoff, Handoff)
    assert len(handoff.inputs) > 1_800_000
    engine.wait_caught_up()
    assert engine.term() == 0
    for report in verify(lab.settings, Partition, lab.partitions):
        assert report.right, report.differences
