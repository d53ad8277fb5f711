"""A client on a real Kafka, with the service's answers by hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.integration.client.fixtures import lab  # noqa: F401
from tests.integration.client.lab import LIMIT_S, PARTITIONS, Lab, wait_for

from dalsegno.client import Client, Flow, Invalid, ReportRefused, RunRefused, RunState, WaitTimeout
from dalsegno.schemas import values
from dalsegno.schemas.events import (
    EffectConfirmed,
    EffectIntended,
    InformationSupplied,
    RunCancelled,
    RunStarted,
    StepCompleted,
    StepFailed,
    StepStarted,
)
from dalsegno.schemas.liveness import Heartbeat, Held
from dalsegno.schemas.outputs import Answer, AnswerType
from dalsegno.schemas.partitioner import partition_for
from dalsegno.streams.core.effects import effect_key, recovery_key

pytestmark = pytest.mark.kafka


def flow() -> Flow:
    flow = Flow("f", ttl="1h")
    flow.observed(name="a", reads=[], writes=["x"])
    return flow


@pytest.fixture
def client(lab: Lab) -> Iterator[Client]:  # noqa: F811
    with Client(bootstrap_servers=lab.bootstrap, prefix=lab.prefix, name="c") as client:
        yield client


def answer(lab: Lab, run_id: str, says: AnswerType, **fields: object) -> None:  # noqa: F811
    """Answer the last event of the run, as the service would."""
    event = wait_for("an event to answer", lambda: lab.events(run_id))[-1]
    given = {"kind": type(event).__name__, **fields}
    reply_to = event.reply_to  # type: ignore[attr-defined]
    # type: ignore[arg-type]
    lab.answer(Answer(reply_to=reply_to, run_id=run_id, answer=says, **given))


def test_a_start_is_in_the_log_and_its_end_comes_back(lab: Lab, client: Client) -> None:  # noqa: F811
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    run_id = client.start(flow(), {"income": 5}, traceparent=trace)
    (started,) = wait_for("the start", lambda: lab.events(run_id, RunStarted))
    assert values.unpack(started.context) == {"income": 5}  # type: ignore[attr-defined]
    assert (started.flow, started.ttl_ms) == ("f", 3_600_000)  # type: ignore[attr-defined]
    assert started.reply_to.startswith("c-")  # type: ignore[attr-defined]
    assert headers(lab) == [[("traceparent", trace.encode())]]
    answer(lab, run_id, AnswerType.ACCEPTED)
    with pytest.raises(WaitTimeout):
        client.wait(run_id, timeout="100ms")
    context = values.pack({"x": 1})
    answer(lab, run_id, AnswerType.ENDED, run_state=RunState.SUCCEEDED, context=context)
    result = client.wait(run_id, timeout="20s")
    assert (result.state, result.context) == (RunState.SUCCEEDED, {"x": 1})


def headers(lab: Lab) -> list[object]:  # noqa: F811
    reader = Consumer({"bootstrap.servers": lab.bootstrap, "group.id": f"{lab.prefix}-headers"})
    reader.assign([TopicPartition(lab.topics.events, number, 0) for number in range(2)])
    found = [message.headers() for message in reader.consume(1, LIMIT_S)]
    reader.close()
    return found


def test_a_refused_start_is_raised_by_wait(lab: Lab, client: Client) -> None:  # noqa: F811
    run_id = client.start(flow(), {}, run_id="refused")
    answer(lab, run_id, AnswerType.REFUSED, reason="ttl_too_short", detail="raise it")
    with pytest.raises(RunRefused, match="ttl_too_short: raise it"):
        client.wait(run_id, timeout="20s")


def test_many_runs_start_in_one_wait(lab: Lab, client: Client) -> None:  # noqa: F811
    ids = client.start_many(flow(), {f"r{n}": {"n": n} for n in range(50)})
    assert ids == [f"r{n}" for n in range(50)]
    wait_for("all starts", lambda: all(lab.kinds(run_id) == ["RunStarted"] for run_id in ids))


def test_a_service_that_drives_itself_reports_under_its_own_attempt(
    lab: Lab,  # noqa: F811
    client: Client,
) -> None:
    report = client.report("r", attempt=3)
    report.started("a")
    effect = report.effect("a", "pay", undo="refund")
    effect.confirm({"id": 7})
    report.progressed("a", save={"page": 2})
    report.completed("a", {"x": 1}, risk_flags=["large"])
    report.failed("a", Invalid("too late"))
    lab.wait_kinds(
        "r",
        "StepStarted",
        "EffectIntended",
        "EffectConfirmed",
        "StepProgressed",
        "StepCompleted",
        "StepFailed",
    )
    assert {(e.epoch, e.attempt) for e in lab.events("r")} == {(0, 3)}  # type: ignore[attr-defined]
    (intended,) = lab.events("r", EffectIntended)
    # type: ignore[attr-defined]
    assert intended.key == effect.key == effect_key(recovery_key("r", "a"), "pay", 0)
    # type: ignore[attr-defined]
    assert values.unpack(lab.events("r", EffectConfirmed)[0].result) == {"id": 7}
    (completed,) = lab.events("r", StepCompleted)
    # type: ignore[attr-defined]
    assert (completed.progress, completed.risk_flags) == (1, ("large",))
    assert lab.events("r", StepFailed)[0].failure_type == "invalid"  # type: ignore[attr-defined]


def test_a_reported_step_sends_heartbeats_from_its_start_to_its_end(
    lab: Lab,  # noqa: F811
    client: Client,
) -> None:
    def told() -> list[tuple[Heartbeat, Held]]:
        found = [each for each in lab.read(lab.topics.heartbeats) if isinstance(each, Heartbeat)]
        return [(each, held) for each in found for held in each.held if held.run_id == "r"]

    with client.report("r", attempt=2) as report:
        report.started("a")
        report.progress()
        heartbeat, held = wait_for("a heartbeat", told)[0]
        report.completed("a", {"x": 1})
    lab.wait_kinds("r", "StepStarted", "StepCompleted")
    (started,) = lab.events("r", StepStarted)
    # type: ignore[attr-defined]
    assert (heartbeat.worker, heartbeat.incarnation) == (started.worker, started.incarnation)
    assert heartbeat.partition == partition_for("r", PARTITIONS)
    assert held == Held(run_id="r", step="a", epoch=0, progress=1)


def test_a_superseded_report_stops_the_service_at_its_next_one(
    lab: Lab,  # noqa: F811
    client: Client,
) -> None:
    report = client.report("r")
    report.started("a")
    answer(lab, "r", AnswerType.SUPERSEDED, step="a", reason="older_attempt")

    def refused() -> ReportRefused | None:
        try:
            report.progressed("a")
        except ReportRefused as error:
            return error
        return None

    error = wait_for("the refusal", refused)
    assert error is not None
    assert (error.outcome, error.reason) == (AnswerType.SUPERSEDED, "older_attempt")


def test_requests_wait_for_their_answer_if_asked(lab: Lab, client: Client) -> None:  # noqa: F811
    client.supply("r", {"income": 4}, origin="applicant", information_id="i-1")
    (supplied,) = wait_for("supplied", lambda: lab.events("r", InformationSupplied))
    # type: ignore[attr-defined]
    assert (supplied.information_id, supplied.origin) == ("i-1", "applicant")
    assert values.unpack(supplied.ops) == [["set", ["income"], 4]]  # type: ignore[attr-defined]
    with pytest.raises(WaitTimeout, match="no answer to RunCancelled"):
        client.cancel("r", "not wanted", timeout="50ms")
    (cancelled,) = wait_for("the request stands", lambda: lab.events("r", RunCancelled))
    assert cancelled.reason == "not wanted"  # type: ignore[attr-defined]
