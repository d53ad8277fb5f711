"""Context schemas on a real Kafka: old runs go on under new code, old code meets newer contexts."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import NotRequired, TypedDict

import pytest
from tests.integration.engine.harness import Lab, wait_for, working
from tests.integration.test_people import Desk, key

from dalsegno.client import (
    Client,
    Context,
    ContextSchema,
    FieldRefused,
    Flow,
    RunState,
    Secret,
    Worker,
)
from dalsegno.ops.cli import app
from dalsegno.ops.cli.failures import ExitCode
from dalsegno.ops.kafka.writer import Writer
from dalsegno.schemas import codec
from dalsegno.schemas.control import Policy, PolicySet
from dalsegno.schemas.events import RunEvent, StepReleased
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.engine.topics_admin import TopicAdmin
from dalsegno.streams.engine.verify import verify

pytestmark = pytest.mark.kafka
QUEUES = ("default", "second", "third")


class OldLoan(TypedDict):
    amount: int
    iban: Secret[str]
    score: NotRequired[int]
    offer: NotRequired[int]
    letter: NotRequired[str]


class Money(TypedDict):
    cents: int


class NewLoan(TypedDict):
    amount: Money
    iban: Secret[str]
    score: NotRequired[int]
    offer: NotRequired[Money]
    letter: NotRequired[str]


def cents(euros: int) -> dict[str, int]:
    return {"cents": euros * 100}


first = ContextSchema("loan", OldLoan)
second = ContextSchema("loan", NewLoan, version=2, examples={1: [{"amount": 5, "offer": 4}]})
second.upcast("amount", from_version=1)(cents)
second.upcast("offer", from_version=1)(cents)


def lending(schema: ContextSchema) -> Flow:
    """The same flow, of the same version, as each release has it."""
    flow = Flow("lending", ttl="30m", context_schema=schema)

    @flow.step(reads=["amount"], writes=["score"])
    async def assess(ctx: Context) -> dict[str, object]:
        return {"score": 7}

    @flow.step(
        reads=["amount", "score", "iban"], writes=["offer"], needs=["assess"], queue="second"
    )
    async def offer(ctx: Context) -> dict[str, object]:
        amount = ctx["amount"]
        assert schema.version == 2, "the old release must not run it here"
        assert amount == {"cents": 50_000}, "the body sees its own version"
        return {"offer": {"cents": 40_000}}

    @flow.step(reads=["offer"], writes=["letter"], needs=["offer"], queue="third")
    async def send(ctx: Context) -> dict[str, object]:
        return {"letter": f"we offer {ctx['offer']}"}

    return flow


old, new = lending(first), lending(second)


@pytest.fixture
def served(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Lab:
    for name, value in lab.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DALSEGNO_DECISION_KEY", str(lab.folder / "ana.json"))
    TopicAdmin(lab.settings).create(QUEUES[1:], lab.partitions)
    policy = Policy(
        queues=QUEUES, redispatch_initial_ms=50, redispatch_max_ms=200, inline_bytes_max=4_000
    )
    writer = Writer(lab.settings)
    for partition in range(lab.partitions):
        writer.append_control(PolicySet(partition=partition, number=1, policy=policy))
    lab.engine(fold="core").wait_ready()
    return lab


def near_limits(lab: Lab) -> list[str]:
    (engine,) = lab.engines
    return [line for line in engine.text("/metrics").splitlines() if "near_limit_total{" in line]


@pytest.fixture
def hire(served: Lab) -> Iterator[Callable[..., Worker]]:
    """Starts workers, and ends those that a test leaves."""
    names = (f"{served.prefix}-{number}" for number in itertools.count())
    with ExitStack() as hired:
        yield lambda flow, *queues: hired.enter_context(
            working(served, flow, next(names), queues=queues)
        )


def released(lab: Lab, run_id: str) -> list[StepReleased]:
    found: list[RunEvent] = []
    for partition in range(lab.partitions):
        for message in lab.read(lab.topics.events, partition):
            record = codec.decode(message.value() or b"")
            if isinstance(record, StepReleased) and record.run_id == run_id:
                found.append(record)
    return [each for each in found if isinstance(each, StepReleased)]


def printed(capsys: pytest.CaptureFixture[str], code: ExitCode, *arguments: str) -> str:
    capsys.readouterr()
    assert app.run([*arguments]) == code
    return capsys.readouterr().out


def test_an_old_run_goes_on_under_new_code_and_old_code_gives_newer_fields_back(
    served: Lab, hire: Callable[..., Worker], capsys: pytest.CaptureFixture[str]
) -> None:
    desk = Desk(capsys)
    key(served.folder / "ana.json", "ana", "--allow")
    client = Client(bootstrap_servers=served.bootstrap, prefix=served.prefix)
    with pytest.raises(FieldRefused, match="iban: is required and missing"):
        client.start(old, {"amount": 500})
    before = hire(old, "default", "third")
    hire(new, "second")
    run_id = client.start(old, {"amount": 500, "iban": "DE-secret-1" + "0" * 3_500})

    # The old worker has the step that reads what the new one wrote: it never starts it.
    (name,) = desk.wait("--step", "send")
    (detail,) = {each.detail for each in released(served, run_id)}
    assert detail == (
        f"run {run_id!r}, field 'offer' is of schema version 2, this code is of 1: "
        "a newer release has written it"
    )
    code, text = desk.run("show", name)
    assert code == ExitCode.OK
    assert "is of schema version 2, this code is of 1" in " ".join(text.split())

    labels = '{field="iban",flow="lending",limit="inline_bytes_max"}'
    wait_for("a field near its limit", lambda: any(labels in line for line in near_limits(served)))
    shown = json.loads(printed(capsys, ExitCode.OK, "show", run_id, "--context", "--json"))
    assert shown["schema"] == "loan"
    assert {name: each["version"] for name, each in shown["fields"].items()} == {
        "amount": 1, "iban": 1, "offer": 2, "score": 1,
    }  # fmt: skip
    assert shown["fields"]["iban"] == {"version": 1, "secret": True}
    rehearsed = printed(capsys, ExitCode.FOUND, "context", "migrate", f"{__name__}:old",
                        "--dry-run", "--json")  # fmt: skip
    (fault,) = json.loads(rehearsed)["faults"]
    assert (fault["run_id"], fault["field"], fault["version"], fault["known"]) == (
        run_id, "offer", 2, 1,
    )  # fmt: skip
    text = printed(capsys, ExitCode.OK, "context", "migrate", f"{__name__}:new", "--dry-run")
    assert "1 runs, 4 fields: every one comes to version 2" in text

    before.stop()
    wait_for("the old release is gone", lambda: not before.ready.is_set())
    hire(new, "third")
    code, text = desk.run("decide", "retry", name, "--reason", "the new release is out")
    assert code == ExitCode.OK, text
    result = client.wait(run_id, "120s")
    assert result.state is RunState.SUCCEEDED
    assert result.context is not None
    assert result.context["letter"] == "we offer {'cents': 40000}"
    assert result.context["amount"] == 500, "nothing is rewritten"
    client.close()

    text = printed(capsys, ExitCode.OK, "diff", run_id, "0", str(result.run_version))
    assert "+ /offer = {'cents': 40000}" in text
    assert "+ /iban (secret)" in text
    assert "DE-secret-1" not in text
    assert "offer: schema version - -> 2" in text
    printed(capsys, ExitCode.NOT_FOUND, "diff", run_id, "1", "999")
    for report in verify(served.settings, Partition, served.partitions):
        assert report.right, report.differences
