"""Events in the Confluent wire format, against a real registry; read without one."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Producer
from tests.integration.as_operated import engine, ready, working
from tests.integration.doubling import flow
from tests.integration.engine.harness import wait_for
from tests.integration.registry.apicurio import Apicurio, NoRegistry, apicurio

from dalsegno.client import Client
from dalsegno.ops.cli import app
from dalsegno.ops.cli.failures import ExitCode
from dalsegno.ops.cli.settings import read_settings
from dalsegno.ops.embedded import EmbeddedKafka
from dalsegno.ops.kafka.reader import Reader
from dalsegno.schemas import codec, values
from dalsegno.schemas.confluent import frame
from dalsegno.schemas.events import RiskFlagged, RunCancelled, RunStarted
from dalsegno.schemas.kinds import RUN_EVENTS
from dalsegno.schemas.partitioner import partition_for
from dalsegno.schemas.plan import Plan, StepPlan
from dalsegno.schemas.registry import registry
from dalsegno.streams.client.schema_registry import (
    RegistryRefused,
    RegistrySettings,
    RegistryUnavailable,
    SchemaRegistry,
)

pytestmark = pytest.mark.kafka

PARTITIONS = 2


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apicurio]:
    try:
        with apicurio(tmp_path_factory.mktemp("registry")) as made:
            yield made
    except NoRegistry as reason:
        pytest.skip(str(reason))


@pytest.fixture
def prefix(
    kafka: EmbeddedKafka, there: Apicurio, fresh_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> str:
    for name, value in {
        "BOOTSTRAP_SERVERS": kafka.bootstrap,
        "PREFIX": fresh_prefix,
        "DEV": "true",
        "MAC_KEYS": "k1:" + "0b" * 32,
        "REGISTRY_URL": there.url,
    }.items():
        monkeypatch.setenv(f"DALSEGNO_{name}", value)
    assert app.run(["topics", "create", "--partitions", str(PARTITIONS)]) == ExitCode.OK
    return fresh_prefix


def append(prefix: str, kafka: EmbeddedKafka, run_id: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(f"{prefix}.events", value, run_id.encode(), partition_for(run_id, PARTITIONS))
    assert producer.flush(20) == 0


def log_of(topic: str) -> list[bytes]:
    with Reader(read_settings()) as reader:
        return [
            record.value or b""
            for number in range(reader.partitions(topic))
            for record in reader.read(topic, number)
        ]


def until_ready(port: int, log: Path) -> None:
    deadline_s = time.monotonic() + 60
    while not ready(port):
        assert time.monotonic() < deadline_s, log.read_text()
        time.sleep(0.1)


def test_schemas_are_registered_once_and_their_ids_enter_the_policy(
    prefix: str, there: Apicurio, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    for new in (True, False):
        assert app.run(["schemas", "register", "--json"]) == ExitCode.OK
        said = json.loads(capsys.readouterr().out)
        assert len(said["done"]) == (PARTITIONS if new else 0)
    assert app.run(["policy", "show", "--json"]) == ExitCode.OK
    policies = json.loads(capsys.readouterr().out)
    assert [each["policy"]["registry_ids"] for each in policies] == [said["ids"]] * PARTITIONS
    newest = registry().newest("StepCompleted")
    found = SchemaRegistry(RegistrySettings(url=there.url)).look_up(newest)
    assert said["ids"][str(found)] == newest.fingerprint.hex()


def test_a_flow_runs_and_goes_on_while_the_registry_stands_still(
    prefix: str, there: Apicurio, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    assert app.run(["schemas", "register"]) == ExitCode.OK
    log = tmp_path / "engine.log"
    with engine(log) as (_, port):
        until_ready(port, log)
        with working(flow) as worker, Client() as client:
            assert worker.ready.wait(40)
            first = [client.start(flow, {"amount": n}) for n in range(4)]
            there.freeze()
            try:
                later = [client.start(flow, {"amount": n}) for n in range(4)]
                append(prefix, kafka, "r-bad", frame(999_999, _flagged("r-bad")))
                ends = [client.wait(run_id, "60s") for run_id in (*first, *later)]
                assert [end.context["doubled"] for end in ends] == [0, 2, 4, 6] * 2
                assert app.run(["verify"]) == ExitCode.OK
                wait_for("the bad one", lambda: log_of(f"{prefix}.dead-letters"))
            finally:
                there.thaw()
    events = log_of(f"{prefix}.events")
    ours = [value for value in events if not value.startswith(codec.MARKER)]
    assert len(ours) > 8 * 3
    assert all(value.startswith(b"\0") for value in ours)
    # What the engine appends itself, and the policy, needs no registry.
    assert {codec.kind_of(v) for v in events if v.startswith(codec.MARKER)} >= {"PolicySet"}
    letters = log_of(f"{prefix}.dead-letters")
    assert letters == [frame(999_999, _flagged("r-bad"))]


def _flagged(run_id: str) -> bytes:
    return codec.encode(RiskFlagged(run_id=run_id, flag_id="1", flag="x"))


def test_an_independent_serializer_is_understood(
    prefix: str, there: Apicurio, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """A producer with Confluent's own serializer, that looks its schemas up by record name."""
    pytest.importorskip("confluent_kafka.schema_registry.avro")
    from confluent_kafka.schema_registry import (
        SchemaRegistryClient,
        record_subject_name_strategy,
    )
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    assert app.run(["schemas", "register"]) == ExitCode.OK
    options = {
        "auto.register.schemas": False,
        "use.latest.version": True,
        "subject.name.strategy": record_subject_name_strategy,
    }
    field = SerializationContext(f"{prefix}.events", MessageField.VALUE)

    def send(event: RunStarted | RunCancelled) -> None:
        text = registry().newest(type(event).__name__).text
        with SchemaRegistryClient({"url": there.url}) as client:
            serialize = AvroSerializer(client, text, conf=options)
            value = serialize(msgspec.to_builtins(event, builtin_types=(bytes,)), field)
        append(prefix, kafka, event.run_id, value)

    plan = Plan(steps=(StepPlan(name="a", queue="default", timeout_ms=1_000),))
    log = tmp_path / "engine.log"
    with engine(log) as (_, port):
        until_ready(port, log)
        send(
            RunStarted(
                run_id="r1",
                flow="f",
                flow_version=1,
                plan=plan,
                context=values.pack({"a": 1}),
                ttl_ms=600_000,
            )
        )
        send(RunCancelled(run_id="r1", request_id="c1", reason="enough"))
        wait_for("both", lambda: len(log_of(f"{prefix}.transitions")) == 2)
    assert log_of(f"{prefix}.dead-letters") == []
    assert app.run(["verify"]) == ExitCode.OK


def test_a_registry_that_lacks_our_schemas_is_an_error_at_the_start(
    prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        with apicurio(tmp_path) as empty:
            monkeypatch.setenv("DALSEGNO_REGISTRY_URL", empty.url)
            with pytest.raises(RegistryRefused, match="dalsegno schemas register"), Client() as c:
                c.start(flow, {"amount": 1})
        with pytest.raises(RegistryUnavailable, match="does not answer"), Client() as client:
            client.start(flow, {"amount": 1})
        assert app.run(["schemas", "register"]) == ExitCode.UNAVAILABLE
    except NoRegistry as reason:
        pytest.skip(str(reason))
    assert log_of(f"{prefix}.events") == []


def test_ids_of_another_registry_are_not_mixed_in(
    prefix: str, there: Apicurio, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    taken = SchemaRegistry(RegistrySettings(url=there.url)).register(registry().newest("Hello"))
    kinds = [registry().newest(kind.__name__) for kind in RUN_EVENTS]
    first = SchemaRegistry(RegistrySettings(url=there.url)).register(kinds[0])
    assert first != taken
    file = tmp_path / "policy.json"
    wrong = {str(first): kinds[1].fingerprint.hex()}
    file.write_text(json.dumps({"registry_ids": wrong}))
    assert app.run(["policy", "apply", str(file), "--yes"]) == ExitCode.OK
    capsys.readouterr()
    assert app.run(["schemas", "register"]) == ExitCode.REFUSED
    assert "another registry" in capsys.readouterr().err
