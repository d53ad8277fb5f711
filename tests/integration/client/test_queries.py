"""Clients that ask about runs which they have not started, on real engines."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest
from tests.integration.engine.harness import EngineProcess, Lab, wait_for

from dalsegno.client import (
    Client,
    ClientConfig,
    EngineUnavailable,
    Flow,
    RunRefused,
    RunResult,
    RunState,
    SettingsError,
    StepState,
    UnknownRun,
    WaitTimeout,
)
from dalsegno.ops.embedded import EmbeddedKafka

pytestmark = pytest.mark.kafka

PARTITIONS = 2


@pytest.fixture
def clients(lab: Lab) -> Iterator[Callable[[str], Client]]:
    made: list[Client] = []

    def make(name: str) -> Client:
        made.append(Client(bootstrap_servers=lab.bootstrap, prefix=lab.prefix, name=name))
        return made[-1]

    yield make
    for client in made:
        client.close()


def observed(ttl: str = "1h") -> Flow:
    flow = Flow("order", ttl=ttl, secrets=["card"])
    flow.observed(name="pay", reads=["amount"], writes=["receipt"], timeout="10m")
    return flow


def engine_of(lab: Lab) -> EngineProcess:
    engine = lab.engine(fold="core")
    engine.wait_ready()
    return engine


def later(work: Callable[[], RunResult]) -> Future[RunResult]:
    """Run it in a thread of its own."""
    future: Future[RunResult] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def finish(client: Client, run_id: str) -> None:
    with client.report(run_id) as report:
        report.started("pay")
        report.completed("pay", {"receipt": "r-1"})


def test_one_client_starts_and_another_waits_for_the_result(
    lab: Lab, clients: Callable[[str], Client]
) -> None:
    engine_of(lab)
    starter, waiter = clients("a"), clients("b")
    starter.start(observed(), {"amount": 5, "card": "4111"}, run_id="order-1")
    ending = later(lambda: waiter.wait("order-1", "60s"))
    assert not ending.done()
    finish(starter, "order-1")
    result = ending.result(60)
    assert result == starter.wait("order-1", "60s")
    assert result.succeeded
    assert result.context == {"amount": 5, "receipt": "r-1"}
    # A client that asks when it is all over, such as the starter after its restart.
    assert clients("a").wait("order-1", "20s") == result


def test_a_refused_start_is_told_to_whoever_waits(
    lab: Lab, clients: Callable[[str], Client]
) -> None:
    engine_of(lab)
    starter, waiter = clients("a"), clients("b")
    starter.start(observed(ttl="1s"), {"amount": 5}, run_id="short")
    with pytest.raises(RunRefused, match="ttl_too_short") as told:
        waiter.wait("short", "30s")
    with pytest.raises(RunRefused) as own:
        starter.wait("short", "30s")
    assert (told.value.reason, told.value.detail) == (own.value.reason, own.value.detail)
    view = waiter.query("short")
    assert (view.kind, view.state, view.steps) == ("refused", None, ())
    assert str(view.refusal) == str(told.value)


def test_an_engine_may_die_and_come_back_while_a_client_waits(
    lab: Lab, clients: Callable[[str], Client]
) -> None:
    engine = engine_of(lab)
    starter, waiter = clients("a"), clients("b")
    starter.start(observed(), {"amount": 5}, run_id="order-1")
    assert waiter.query("order-1").state is RunState.RUNNING
    ending = later(lambda: waiter.wait("order-1", "120s"))
    engine.kill()
    with pytest.raises(EngineUnavailable, match="no engine answers"):
        waiter.query("order-1", timeout="300ms")
    with pytest.raises(WaitTimeout, match="no engine answers"):
        clients("c").wait("order-1", "500ms")
    finish(starter, "order-1")
    engine.restart()
    assert ending.result(120).succeeded


def test_a_query_sees_what_its_client_has_just_written(
    lab: Lab, clients: Callable[[str], Client]
) -> None:
    engine_of(lab)
    client = clients("a")
    for number in range(20):
        run_id = f"run-{number}"
        client.start(observed(), {"amount": number, "card": "4111"}, run_id=run_id)
        view = client.query(run_id)
        assert (view.kind, view.state, view.flow) == ("run", RunState.RUNNING, "order")
        assert (view.context, view.secrets_omitted) == ({"amount": number}, ("card",))
        client.report(run_id).started("pay")
        assert client.query(run_id).step("pay").state is StepState.RUNNING
    found = client.runs(flow="order", limit=50)
    assert {view.run_id for view in found} == {f"run-{number}" for number in range(20)}
    assert client.runs(state=RunState.SUCCEEDED) == []
    assert len(client.runs(limit=3)) == 3


def test_a_run_that_is_not_there_is_said_at_once(
    lab: Lab, clients: Callable[[str], Client]
) -> None:
    engine_of(lab)
    client = clients("a")
    with pytest.raises(UnknownRun, match="no run 'nobody'"):
        client.query("nobody")
    with pytest.raises(UnknownRun):
        client.wait("nobody", "60s")


def test_a_start_that_another_client_has_sent_before_is_waited_for_all_the_same(
    lab: Lab, clients: Callable[[str], Client]
) -> None:
    engine_of(lab)
    first, second = clients("a"), clients("b")
    for client in (first, second):
        client.start(observed(), {"amount": 5}, run_id="order-1")
    ending = later(lambda: second.wait("order-1", "60s"))
    finish(first, "order-1")
    assert ending.result(60).succeeded


def test_without_an_engine_or_topics_the_error_says_what_to_do(
    lab: Lab, clients: Callable[[str], Client], kafka: EmbeddedKafka
) -> None:
    with pytest.raises(EngineUnavailable, match="no engine has claimed"):
        clients("a").query("order-1", timeout="100ms")
    config = ClientConfig(kafka.bootstrap, f"{lab.prefix}-none")
    with Client(config=config) as client, pytest.raises(SettingsError, match="topics create"):
        client.query("order-1", timeout="100ms")


def test_a_restoring_partition_is_waited_for(lab: Lab, clients: Callable[[str], Client]) -> None:
    engine = engine_of(lab)
    client = clients("a")
    client.start_many(observed(), {f"run-{n}": {"amount": n} for n in range(2_000)})
    wait_for("all applied", lambda: sum(open_runs(engine)) == 2_000)
    engine.kill()
    engine.restart()
    assert client.query("run-1999", timeout="60s").state is RunState.RUNNING


def open_runs(engine: EngineProcess) -> list[int]:
    _, body = engine.get("/partitions")
    return [each.get("open_runs", 0) for each in body["own"]]  # type: ignore[call-overload, index]
