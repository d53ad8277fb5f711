"""Packages are posted to real receivers that fail, hang and go, by engines that are killed."""

from __future__ import annotations

import base64
import json
import signal
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families
from tests.integration.engine.harness import EngineProcess, Lab, wait_for
from tests.integration.receivers import Receiver

from dalsegno.ops.cli import app
from dalsegno.ops.cli.failures import ExitCode
from dalsegno.ops.kafka.writer import Writer
from dalsegno.schemas import values
from dalsegno.schemas.control import Policy, PolicySet, Webhook
from dalsegno.schemas.events import (
    FailureType,
    RunCancelled,
    RunEvent,
    RunStarted,
    StepFailed,
    StepStarted,
)
from dalsegno.schemas.plan import Plan, StepPlan
from dalsegno.streams.agents.webhooks.courier import WAITING_MAX
from dalsegno.streams.agents.webhooks.feed import CHUNK, group_of
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.engine.verify import verify

pytestmark = pytest.mark.kafka

SECRET = "whsec_" + base64.b64encode(b"for tests, 24 bytes long").decode()
ENV = {"DALSEGNO_WEBHOOK_SECRETS": f"k1:{SECRET}"}
PLAN = Plan(steps=(StepPlan(name="pay"),))

MakeReceiver = Callable[[int], Receiver]


@pytest.fixture
def receivers() -> Iterator[MakeReceiver]:
    made: list[Receiver] = []

    def make(status: int) -> Receiver:
        made.append(Receiver(SECRET, status))
        return made[-1]

    yield make
    for each in made:
        each.close()


def hook(name: str, receiver: Receiver, **fields: int | str) -> Webhook:
    return Webhook(
        name=name,
        url=receiver.url,
        key_id=str(fields.pop("key_id", "k1")),
        retry_initial_ms=int(fields.pop("retry_initial_ms", 100)),
        retry_max_ms=500,
        **fields,  # type: ignore[arg-type]
    )


def list_webhooks(lab: Lab, *hooks: Webhook, number: int = 1) -> None:
    writer = Writer(lab.settings)
    for partition in range(lab.partitions):
        policy = Policy(webhooks=hooks)
        writer.append_control(PolicySet(partition=partition, number=number, policy=policy))


def posting(lab: Lab, *hooks: Webhook) -> EngineProcess:
    """An engine that is ready, under a policy with these targets."""
    list_webhooks(lab, *hooks)
    engine = lab.engine(fold="core", **ENV)
    engine.wait_ready()
    return engine


def fail_runs(lab: Lab, first: int, count: int) -> set[object]:
    """Runs of a service that drives itself, whose step fails for good: each asks a person."""
    names = [f"run-{i}" for i in range(first, first + count)]
    events: list[RunEvent] = []
    for name in names:
        begun = {"run_id": name, "step": "pay", "attempt": 1}
        events.extend([
            RunStarted(run_id=name, flow="cards", flow_version=1, plan=PLAN,
                       context=values.pack({}), ttl_ms=3_600_000),
            StepStarted(**begun, epoch=0, worker="w", incarnation=1),
            StepFailed(**begun, epoch=0, failure_type=FailureType.PERMANENT, message="declined"),
        ])  # fmt: skip
    lab.send(events)
    return set(names)


def figure(engine: EngineProcess, name: str, **labels: str) -> float:
    """One number of the engine's metrics; 0 when it is not there."""
    for family in text_string_to_metric_families(engine.text("/metrics")):
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                return sample.value
    return 0.0


def waiting(capsys: pytest.CaptureFixture[str]) -> int:
    """What the command line says, with or without an engine."""
    capsys.readouterr()
    assert app.run(["escalations", "webhooks", "--json"]) == ExitCode.OK
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["oldest_ms"] > 0) == (found["unsettled"] > 0)
    return int(found["unsettled"])


def test_a_receiver_that_was_down_hears_each_package_once_though_engines_are_killed(
    lab: Lab,
    receivers: MakeReceiver,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """R042: a notice was dropped after three attempts within seconds."""
    for name, value in lab.environment().items():
        monkeypatch.setenv(name, value)
    desk = receivers(503)
    engine = posting(lab, hook("desk", desk))
    runs = fail_runs(lab, 0, 8)
    wait_for("attempts", lambda: desk.posts[503] >= 5)
    wait_for("all wait", lambda: figure(engine, "dalsegno_webhook_undelivered") == 8)
    assert figure(engine, "dalsegno_webhook_oldest_seconds", webhook="desk") > 0
    wait_for(
        "counted", lambda: figure(engine, "dalsegno_webhook_posts_total", result="trouble") >= 5
    )
    engine.kill()
    assert waiting(capsys) == 8

    desk.status = 200
    engine.restart()
    wait_for("delivered", lambda: desk.runs() == runs)
    assert set(desk.taken.values()) == {1}
    wait_for("on record", lambda: figure(engine, "dalsegno_webhook_undelivered") == 0)
    wait_for("committed", lambda: waiting(capsys) == 0)
    engine.kill()

    engine.restart()
    runs |= fail_runs(lab, 8, 4)
    wait_for("the new ones too", lambda: desk.runs() == runs)
    assert len(desk.taken) == 12
    assert set(desk.taken.values()) == {1}, "what was delivered before the kill is not again"
    package = next(iter(desk.packages.values()))
    assert package["question"] == "How does the run go on, now that step pay cannot?"
    assert engine.term() == 0
    for report in verify(lab.settings, Partition, lab.partitions):
        assert report.right, report.differences


def test_another_engine_takes_over_and_one_that_wakes_again_repeats_at_most_the_same_message(
    lab: Lab, receivers: MakeReceiver
) -> None:
    desk = receivers(503)
    frozen = posting(lab, hook("desk", desk))
    other = lab.engine(fold="core", **ENV)
    wait_for("both have partitions", lambda: 0 < owned(other) < lab.partitions)
    runs = fail_runs(lab, 0, 12)
    wait_for("attempts", lambda: desk.posts[503] >= 4)
    frozen.signal(signal.SIGSTOP)
    desk.status = 200
    wait_for("taken over and delivered", lambda: desk.runs() == runs)
    frozen.signal(signal.SIGCONT)
    more = fail_runs(lab, 12, 6)
    wait_for("the new ones", lambda: desk.runs() == runs | more)
    assert len(desk.bodies) == len(desk.taken) == 18, "one id for each package, whoever posts it"
    assert all(len(bodies) == 1 for bodies in desk.bodies.values()), "and one body"
    # What was out when it fell asleep is all that the one that wakes again can repeat.
    assert desk.taken.total() <= 18 + 1


def owned(engine: EngineProcess) -> int:
    """Partitions that an engine runs."""
    _, body = engine.get("/readyz")
    return len(body.get("partitions", ())) if isinstance(body, dict) else 0


def test_receivers_that_hang_or_are_gone_hold_up_nobody(lab: Lab, receivers: MakeReceiver) -> None:
    hangs, gone, well, unsigned = receivers(200), receivers(410), receivers(200), receivers(200)
    hangs.hangs = True
    engine = posting(
        lab,
        hook("hangs", hangs, timeout_ms=60_000),
        hook("gone", gone),
        hook("well", well),
        hook("unsigned", unsigned, key_id="k2"),
        hook("other", unsigned, key_id="k1", flows=("none",)),
    )
    runs = fail_runs(lab, 0, 40)
    wait_for("the one that is well", lambda: well.runs() == runs)
    wait_for("the one that hangs", lambda: hangs.posts[0] >= 1)
    assert hangs.posts[0] == 1, "one attempt is out at a time"
    wait_for("gone", lambda: figure(engine, "dalsegno_webhook_gone", webhook="gone") == 1)
    runs |= fail_runs(lab, 40, 10)
    wait_for("more", lambda: well.runs() == runs)
    assert gone.posts[410] == 1
    assert set(well.taken.values()) == {1}
    wait_for(
        "all wait", lambda: figure(engine, "dalsegno_webhook_undelivered", webhook="gone") == 50
    )
    wait_for("no key", lambda: figure(engine, "dalsegno_webhook_posts_total", webhook="unsigned",
                                      result="trouble") >= 1)  # fmt: skip
    assert not unsigned.posts
    # Listed anew it hears what is still asked.
    gone.status = 200
    list_webhooks(lab, hook("gone", gone, retry_initial_ms=200), number=2)
    wait_for("heard again", lambda: gone.runs() == runs)
    assert engine.term() == 0


def test_what_is_answered_or_over_meanwhile_is_not_posted_any_more(
    lab: Lab, receivers: MakeReceiver
) -> None:
    desk = receivers(503)
    engine = posting(lab, hook("desk", desk))
    runs = fail_runs(lab, 0, 6)
    wait_for("all wait", lambda: figure(engine, "dalsegno_webhook_undelivered") == 6)
    lab.send([RunCancelled(run_id=f"run-{i}", request_id="c", reason="over") for i in range(3)])
    wait_for("overtaken", lambda: figure(engine, "dalsegno_webhook_dropped_total",
                                         reason="overtaken") == 3)  # fmt: skip
    desk.status = 200
    wait_for("the others", lambda: desk.runs() == runs - {"run-0", "run-1", "run-2"})
    assert engine.term() == 0


def test_a_position_that_the_log_does_not_have_loses_nothing(
    lab: Lab, receivers: MakeReceiver
) -> None:
    desk = receivers(200)
    consumer = Consumer(
        {"bootstrap.servers": lab.bootstrap, "group.id": group_of(lab.settings, "desk")}
    )
    places = [TopicPartition(lab.topics.escalations, n, 10_000) for n in range(lab.partitions)]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()
    engine = posting(lab, hook("desk", desk))
    runs = fail_runs(lab, 0, 8)
    wait_for("delivered", lambda: desk.runs() == runs)
    assert set(desk.taken.values()) == {1}
    assert engine.term() == 0


def test_more_packages_than_wait_at_once_are_all_delivered_in_the_end(
    lab: Lab, receivers: MakeReceiver
) -> None:
    desk = receivers(503)
    engine = posting(lab, hook("desk", desk))
    count = 5 * WAITING_MAX
    runs = fail_runs(lab, 0, count)
    wait_for("a full window", lambda: figure(engine, "dalsegno_webhook_undelivered") >= WAITING_MAX)
    wait_for("all asked", lambda: figure(engine, "dalsegno_escalations_total") == count)
    most = lab.partitions * WAITING_MAX
    assert figure(engine, "dalsegno_webhook_undelivered") <= most + CHUNK * lab.partitions
    desk.status = 200
    wait_for("delivered", lambda: desk.runs() == runs)
    assert set(desk.taken.values()) == {1}
    assert engine.term() == 0
