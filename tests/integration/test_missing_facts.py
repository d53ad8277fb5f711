"""Missing facts on a real Kafka: a supplier answers its queue, a person answers a form."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer
from tests.integration.engine.harness import Lab, wait_for, working
from tests.integration.test_people import Desk, key

from dalsegno.client import Client, Context, Flow, ReportRefused, RunState
from dalsegno.ops.cli.failures import ExitCode
from dalsegno.ops.kafka.writer import Writer
from dalsegno.schemas import codec
from dalsegno.schemas.control import Policy, PolicySet
from dalsegno.schemas.outputs import Handoff, Transition
from dalsegno.schemas.package import FormField
from dalsegno.schemas.plan import FieldType
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.engine.topics_admin import TopicAdmin
from dalsegno.streams.engine.verify import verify

pytestmark = pytest.mark.kafka

parcels = Flow(
    "parcels",
    version=1,
    ttl="30m",
    fields={
        "address": ("text", "Street and number."),
        "leaves": ("time", "When the van leaves."),
    },
)


@parcels.step(reads=["order", "address", "leaves"], writes=["label"])
async def label(ctx: Context) -> dict[str, object]:
    return {"label": f"{ctx['order']}: {ctx['address']}, {ctx['leaves']:%d.%m.%Y %H:%M}"}


ADDRESS = FormField(
    field="address", type=FieldType.TEXT, text="Street and number.", needed_by=("label",)
)
LEAVES = FormField(
    field="leaves", type=FieldType.TIME, text="When the van leaves.", needed_by=("label",)
)


@pytest.fixture
def served(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A policy with a supplier queue, an engine, a worker, and settings for the command line."""
    for name, value in lab.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DALSEGNO_DECISION_KEY", str(lab.folder / "ana.json"))
    TopicAdmin(lab.settings).create(("facts",), lab.partitions)
    policy = Policy(queues=("default", "facts"), supplier_queue="facts", supplier_wait_ms=4_000)
    writer = Writer(lab.settings)
    for partition in range(lab.partitions):
        writer.append_control(PolicySet(partition=partition, number=1, policy=policy))
    lab.engine(fold="core").wait_ready()
    with working(lab, parcels):
        yield lab


class Supplier:
    """A service that reads the queue with a consumer of its own, and answers with the SDK."""

    def __init__(self, lab: Lab, answer: Callable[[Client, Handoff], None]) -> None:
        self.asked: list[Handoff] = []
        self._answer = answer
        self._stop = threading.Event()
        self._client = Client(bootstrap_servers=lab.bootstrap, prefix=lab.prefix)
        self._consumer = Consumer(
            {
                "bootstrap.servers": lab.bootstrap,
                "group.id": f"{lab.prefix}-crm",
                "auto.offset.reset": "earliest",
            }
        )
        self._consumer.subscribe([lab.topics.queue("facts")])
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            handoff = codec.decode(message.value() or b"")
            assert isinstance(handoff, Handoff)
            self.asked.append(handoff)
            self._answer(self._client, handoff)
        self._consumer.close()
        self._client.close()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(20)


def transitions(lab: Lab, run_id: str) -> list[Transition]:
    found = []
    for partition in range(lab.partitions):
        for message in lab.read(lab.topics.transitions, partition):
            record = codec.decode(message.value() or b"")
            if isinstance(record, Transition) and record.run_id == run_id:
                found.append(record)
    return found


def test_a_supplier_answers_its_queue_and_the_run_goes_on_where_it_stood(served: Lab) -> None:
    refused: list[str] = []

    def answer(client: Client, asked: Handoff) -> None:
        try:
            client.supply(asked.run_id, {"address": 7}, origin="crm", timeout="20s")
        except ReportRefused as error:
            refused.append(error.reason)
        for version, street in ((asked.run_version - 1, "Rue 0"), (asked.run_version, "Rue 1")):
            try:
                client.supply(
                    asked.run_id,
                    {"address": street},
                    origin="crm",
                    expected_run_version=version,
                    timeout="20s",
                )
            except ReportRefused as error:
                refused.append(error.reason)

    supplier = Supplier(served, answer)
    client = Client(bootstrap_servers=served.bootstrap, prefix=served.prefix)
    leaves = dt.datetime(2026, 12, 1, 9, tzinfo=dt.UTC)
    run_id = client.start(parcels, {"order": "o-1", "leaves": leaves})
    result = client.wait(run_id, "60s")
    supplier.close()
    assert result.state is RunState.SUCCEEDED
    assert result.context is not None
    assert result.context["label"] == "o-1: Rue 1, 01.12.2026 09:00"
    (asked,) = supplier.asked
    assert (asked.step, asked.writes, asked.form) == ("label", ("address",), (ADDRESS,))
    assert asked.goal == "Supply address: step label needs it."
    assert refused == ["wrong_type", "version_conflict"]

    def on_record() -> list[Transition]:
        return [t for t in transitions(served, run_id) if t.cause == "InformationSupplied"]

    record = wait_for("all on record", lambda: len(on_record()) >= 3 and on_record())
    assert [(each.outcome, each.reason) for each in record] == [
        ("refused", "wrong_type"),
        ("refused", "version_conflict"),
        ("applied", ""),
    ]
    client.close()
    for report in verify(served.settings, Partition, served.partitions):
        assert report.right, report.differences


def test_a_supplier_that_is_silent_gives_way_to_a_person_who_fills_in_the_form(
    served: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    desk = Desk(capsys)
    key(served.folder / "ana.json", "ana", "--allow")
    supplier = Supplier(served, lambda client, asked: None)
    client = Client(bootstrap_servers=served.bootstrap, prefix=served.prefix)
    run_id = client.start(parcels, {"order": "o-2", "address": "Rue 2"})
    (name,) = desk.wait("--step", "label")
    wait_for("the supplier was asked first", lambda: supplier.asked)
    supplier.close()
    assert supplier.asked[0].form == (LEAVES,)
    code, text = desk.run("show", name)
    assert code == ExitCode.OK
    assert "leaves (time): When the van leaves." in text
    code, text = desk.run("decide", "supply", name, "--set", 'leaves="soon"', "--reason", "guess")
    assert (code, "wrong_type" in text) == (ExitCode.REFUSED, True)
    code, text = desk.run(
        "decide", "supply", name, "--set", "leaves=2026-12-01T10:00:00+01:00", "--reason", "asked"
    )
    assert code == ExitCode.OK, text
    result = client.wait(run_id, "60s")
    assert result.context is not None
    assert result.context["label"] == "o-2: Rue 2, 01.12.2026 09:00"
    client.close()
