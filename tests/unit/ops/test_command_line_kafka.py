"""Commands against a real broker: topics, policy, rules, dead letters, replay."""

import json
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from dalsegno.ops.cli import app
from dalsegno.ops.cli.failures import ExitCode
from dalsegno.ops.cli.settings import read_settings
from dalsegno.ops.embedded import EmbeddedKafka
from dalsegno.ops.kafka.reader import Reader, ReadError
from dalsegno.ops.kafka.writer import Writer
from dalsegno.schemas import codec, headers, values
from dalsegno.schemas.control import Policy, PolicySet
from dalsegno.schemas.events import RunCancelled, RunStarted, StepCompleted, StepStarted
from dalsegno.schemas.outputs import DeadLetter
from dalsegno.schemas.partitioner import partition_for
from dalsegno.schemas.plan import Plan, StepPlan
from dalsegno.schemas.registry import registry
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.partition_parts import PARTITION_KEY
from dalsegno.streams.core.record import Record

pytestmark = pytest.mark.kafka

PARTITIONS = 3
KEY = "k1:" + "07" * 32


@pytest.fixture
def prefix(kafka: EmbeddedKafka, fresh_prefix: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Settings of a fresh set of topics, which are made."""
    monkeypatch.setenv("DALSEGNO_BOOTSTRAP_SERVERS", kafka.bootstrap)
    monkeypatch.setenv("DALSEGNO_PREFIX", fresh_prefix)
    monkeypatch.setenv("DALSEGNO_MAC_KEYS", KEY)
    monkeypatch.setenv("DALSEGNO_DEV", "true")
    assert app.run(["topics", "create", "--partitions", str(PARTITIONS)]) == ExitCode.OK
    return fresh_prefix


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> object:
    capsys.readouterr()
    assert app.run([*arguments, "--json"]) == ExitCode.OK
    return json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("prefix")
def test_topics_are_made_once_and_a_queue_enters_the_policy(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_json(capsys, "topics", "create") == []
    done = run_json(capsys, "topics", "create", "--queue", "fast")
    assert isinstance(done, list)
    assert len(done) == 1 + PARTITIONS
    assert run_json(capsys, "topics", "create", "--queue", "fast") == []
    policies = run_json(capsys, "policy", "show")
    assert isinstance(policies, list)
    assert [each["policy"]["queues"] for each in policies] == [["default", "fast"]] * PARTITIONS
    assert app.run(["topics", "check"]) == ExitCode.OK
    assert app.run(["topics", "check", "--queue", "slow"]) == ExitCode.FOUND


def test_topics_need_three_brokers_unless_it_is_dev(
    prefix: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DALSEGNO_PREFIX", f"{prefix}-more")
    monkeypatch.setenv("DALSEGNO_DEV", "false")
    assert app.run(["topics", "create"]) == ExitCode.USAGE
    assert "DALSEGNO_DEV=true" in capsys.readouterr().err


@pytest.mark.usefixtures("prefix")
def test_a_policy_is_applied_to_every_partition_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "policy.toml"
    file.write_text("start_limit_ms = 1234\n")
    for _ in range(2):
        assert app.run(["policy", "apply", str(file), "--yes"]) == ExitCode.OK
    found = run_json(capsys, "policy", "show")
    assert isinstance(found, list)
    assert [each["number"] for each in found] == [1] * PARTITIONS
    assert {each["policy"]["start_limit_ms"] for each in found} == {1234}


@pytest.mark.parametrize(
    "text",
    [
        'queues = ["default", "nowhere"]',
        'mac_keys = ["k2"]',
        'schemas = ["0011223344556677"]',
        "dispatch_bytes_max = 5000000",
    ],
)
@pytest.mark.usefixtures("prefix")
def test_a_policy_may_ask_only_for_what_is_there(text: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(text)
    assert app.run(["policy", "apply", str(file), "--yes"]) == ExitCode.REFUSED


@pytest.mark.usefixtures("prefix")
def test_a_policy_that_would_shut_its_own_signer_out_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DALSEGNO_MAC_KEYS", f"{KEY},k2:" + "08" * 32)
    file = tmp_path / "policy.toml"
    file.write_text('mac_keys = ["k2"]')
    assert app.run(["policy", "apply", str(file), "--yes"]) == ExitCode.REFUSED
    assert "'k1' is the first" in capsys.readouterr().err
    file.write_text('mac_keys = ["k1", "k2"]')
    assert app.run(["policy", "apply", str(file), "--yes"]) == ExitCode.OK


def test_a_forged_policy_is_not_in_force(prefix: str, capsys: pytest.CaptureFixture[str]) -> None:
    forged = PolicySet(partition=0, number=7, policy=Policy(start_limit_ms=1))
    mac = b"k1:" + bytes(32)
    Writer(read_settings()).append(
        f"{prefix}.events", 0, b"0", codec.encode(forged), [(headers.MAC, mac)]
    )
    found = run_json(capsys, "policy", "show")
    assert isinstance(found, list)
    assert found[0]["number"] == 0


def test_a_policy_that_the_fold_refuses_is_not_in_force(
    prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = Writer(read_settings())
    for number, start_limit_ms in ((1, 5_000), (2, 0)):
        policy = Policy(start_limit_ms=start_limit_ms)
        writer.append_control(PolicySet(partition=0, number=number, policy=policy))
    found = run_json(capsys, "policy", "show")
    assert isinstance(found, list)
    assert (found[0]["number"], found[0]["policy"]["start_limit_ms"]) == (1, 5_000)


def test_a_policy_stands_though_the_log_has_lost_its_event(
    prefix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With an archive the events may have a retention; the next policy builds on this one."""
    settings = read_settings()
    writer = Writer(settings)
    for number in range(PARTITIONS):
        event = PolicySet(partition=number, number=7, policy=Policy(start_limit_ms=1_234))
        writer.append_control(event)
    admin = AdminClient({"bootstrap.servers": settings.bootstrap_servers})
    cut = [TopicPartition(f"{prefix}.events", number, 1) for number in range(PARTITIONS)]
    for future in admin.delete_records(cut).values():
        future.result(20)
    assert app.run(["policy", "show"]) == ExitCode.UNAVAILABLE
    assert "start `dalsegno engine`" in capsys.readouterr().err
    for number in range(PARTITIONS):
        saved = Partition(number)
        policy = Policy(start_limit_ms=1_234)
        event = PolicySet(partition=number, number=7, policy=policy)
        saved.apply(Record(0, 1, b"", b"", event))
        writer.append(
            settings.topics.runs_changelog, number, PARTITION_KEY, saved.parts()[PARTITION_KEY]
        )
    file = tmp_path / "policy.toml"
    file.write_text("live_cap_ms = 2000\n")
    assert app.run(["policy", "apply", str(file), "--yes"]) == ExitCode.OK
    found = run_json(capsys, "policy", "show")
    assert isinstance(found, list)
    for each in found:
        assert each["number"] == 8
        assert (each["policy"]["start_limit_ms"], each["policy"]["live_cap_ms"]) == (1_234, 2_000)
    rules = run_json(capsys, "rules", "show")
    assert isinstance(rules, list)
    assert [each["rules"] for each in rules] == [1] * PARTITIONS


@pytest.mark.usefixtures("prefix")
def test_rules_wait_for_owners_that_know_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["rules", "activate", "2"]) == ExitCode.REFUSED
    assert "has no owner" in capsys.readouterr().err
    rules = run_json(capsys, "rules", "show")
    assert isinstance(rules, list)
    assert [each["rules"] for each in rules] == [1] * PARTITIONS


def put_aside(prefix: str, run_id: str, earlier: bytes = b"") -> bytes:
    """A dead letter as an engine writes it; returns its original value."""
    event = codec.encode(RunCancelled(run_id=run_id, request_id="once"))
    letter = DeadLetter(
        topic=f"{prefix}.events",
        partition=0,
        offset=0,
        at_ms=1,
        reason="wrong_partition",
        detail="belongs elsewhere",
        run_id=run_id,
        kind="RunCancelled",
    )
    original = [("traceparent", b"00-x")]
    if earlier:
        original.append((headers.DEAD_LETTER, earlier))
    Writer(read_settings()).append(
        f"{prefix}.dead-letters",
        0,
        run_id.encode(),
        event,
        [*original, (headers.DEAD_LETTER, codec.encode(letter))],
    )
    return event


def test_a_dead_letter_goes_back_once_as_it_came(
    prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    event = put_aside(prefix, "run-1")
    listed = run_json(capsys, "dead-letters", "list")
    assert isinstance(listed, list)
    assert [(each["name"], each["letter"]["reason"]) for each in listed] == [
        ("0:0", "wrong_partition")
    ]
    assert app.run(["dead-letters", "requeue", "0:0"]) == ExitCode.OK
    assert app.run(["dead-letters", "requeue", "0:0"]) == ExitCode.REFUSED
    assert "already back in the log" in capsys.readouterr().err
    with Reader(read_settings()) as reader:
        right = partition_for("run-1", PARTITIONS)
        back = list(reader.read(f"{prefix}.events", right))
    assert [(each.key, each.value) for each in back] == [(b"run-1", event)]
    assert [name for name, _ in back[0].headers] == ["traceparent", headers.DEAD_LETTER]


def test_a_letter_that_failed_again_stays(prefix: str) -> None:
    earlier = codec.encode(
        DeadLetter(
            topic=f"{prefix}.events", partition=0, offset=0, at_ms=1, reason="bad_mac", detail=""
        )
    )
    put_aside(prefix, "run-1", earlier)
    assert app.run(["dead-letters", "requeue", "0:0"]) == ExitCode.REFUSED
    assert app.run(["dead-letters", "show", "0:0"]) == ExitCode.OK
    assert app.run(["dead-letters", "show", "0:1"]) == ExitCode.NOT_FOUND


def test_replay_needs_only_the_log(prefix: str, capsys: pytest.CaptureFixture[str]) -> None:
    run_id, writer = "run-7", Writer(read_settings())
    partition = partition_for(run_id, PARTITIONS)
    steps = (StepPlan(name="one", reads=("a",), writes=("b",), queue="default"),)
    for event in (
        RunStarted(
            run_id=run_id,
            flow="f",
            flow_version=1,
            plan=Plan(steps=steps),
            context=values.pack({"a": 1}),
        ),
        StepStarted(run_id=run_id, step="one", epoch=1),
        StepCompleted(run_id=run_id, step="one", epoch=1, ops=values.pack([["set", ["b"], 2]])),
    ):
        writer.append(f"{prefix}.events", partition, run_id.encode(), codec.encode(event))
    history = run_json(capsys, "replay", run_id)
    assert isinstance(history, list)
    assert [each["cause"] for each in history] == ["RunStarted", "StepStarted", "StepCompleted"]
    assert history[-1]["run_state_after"] == "succeeded"
    assert history[-1]["diff"]["added"] == {"/b": ["set", 2]}
    cut = run_json(capsys, "replay", run_id, "--to", "1")
    assert cut == history[:1]
    assert app.run(["replay", run_id]) == ExitCode.OK
    assert "+ /b = 2" in capsys.readouterr().out
    assert app.run(["replay", "nobody"]) == ExitCode.NOT_FOUND


def test_report_tells_the_signals_of_a_flow_from_the_log(
    prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_json(capsys, "report") == []
    plan = Plan(steps=(StepPlan(name="a", queue="default"),))
    writer = Writer(read_settings())
    for flow, run_id in (("f", "one"), ("f", "two"), ("g", "three")):
        events: list[RunStarted | StepStarted | StepCompleted] = [
            RunStarted(
                run_id=run_id, flow=flow, flow_version=1, plan=plan, context=values.pack({})
            ),
            StepStarted(run_id=run_id, step="a", epoch=1, worker="w"),
            StepCompleted(run_id=run_id, step="a", epoch=1, ops=b"\x90"),
        ]
        late = [StepCompleted(run_id=run_id, step="a", epoch=2, ops=b"\x90")]
        for event in events + (late if run_id == "two" else []):
            partition = partition_for(run_id, PARTITIONS)
            writer.append(f"{prefix}.events", partition, run_id.encode(), codec.encode(event), [])
    found = run_json(capsys, "report", "--flow", "f", "--last", "1")
    assert isinstance(found, list)
    (report,) = found
    assert (report["flow"], report["runs"], report["states"]) == ("f", 2, {"succeeded": 2})
    assert report["signals"]["state_conflict_rate"] == pytest.approx(1 / 7)
    assert report["signals"]["rework_rate"] == 0
    assert report["missing"]["identity"] == report["troubled_runs"] == 1
    assert report["troubled"][0]["run_id"] == "two"
    assert app.run(["report"]) == ExitCode.OK
    out = capsys.readouterr().out
    assert out.index("f: 2 runs") < out.index("g: 1 runs")
    assert "1 superseded, 0 refused of 7 events" in " ".join(out.split())
    assert app.run(["report", "--flow", "nowhere"]) == ExitCode.NOT_FOUND


@pytest.mark.usefixtures("prefix")
def test_verify_of_a_log_that_nobody_has_read_finds_nothing() -> None:
    assert app.run(["verify"]) == ExitCode.OK


def test_doctor_finds_that_no_engine_runs(prefix: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert prefix
    capsys.readouterr()
    assert app.run(["doctor", "--json"]) == ExitCode.FOUND
    found = {each["subject"]: each for each in json.loads(capsys.readouterr().out)}
    assert found["kafka"]["health"] == "ok"
    assert found["engines"]["health"] == "fault"
    assert found["mac key"]["health"] == "ok"


def test_a_reader_stops_at_the_present_end(prefix: str) -> None:
    topic = f"{prefix}.events"
    writer = Writer(read_settings())
    for number in range(5):
        writer.append(topic, 0, b"k", b"%d" % number)
    passed: list[int] = []
    with Reader(read_settings()) as reader:
        found = list(reader.read(topic, 0, 1, 4, passed.append))
        assert [each.value for each in found] == [b"1", b"2", b"3"]
        assert sum(passed) == 3
        assert list(reader.read(topic, 0, 5)) == []
        with pytest.raises(ReadError, match="there is no topic"):
            reader.partitions(f"{prefix}.nothing")


def test_a_start_without_topics_says_how_to_make_them(
    kafka: EmbeddedKafka,
    fresh_prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "small_flow.py").write_text(
        "from dalsegno.client import Flow\n"
        'flow = Flow("small", ttl="1h")\n'
        'flow.observed(name="a", reads=[], writes=["x"])\n'
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("DALSEGNO_BOOTSTRAP_SERVERS", kafka.bootstrap)
    monkeypatch.setenv("DALSEGNO_PREFIX", fresh_prefix)
    assert app.run(["start", "small_flow:flow"]) == ExitCode.USAGE
    assert "run `dalsegno topics create`" in capsys.readouterr().err


@pytest.mark.usefixtures("prefix")
@pytest.mark.parametrize(
    ("without", "code"),
    [
        ("", ExitCode.OK),
        ("StepReleased", ExitCode.OK),
        ("PolicySet", ExitCode.REFUSED),
        ("FaultReport", ExitCode.REFUSED),
    ],
)
def test_a_list_of_schemas_has_what_the_service_itself_writes(
    without: str, code: ExitCode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = [each.fingerprint.hex() for each in registry().all() if each.kind != without]
    file = tmp_path / "policy.toml"
    file.write_text(f"schemas = {json.dumps(listed)}\n")
    assert app.run(["policy", "apply", str(file), "--yes"]) == code
    assert (code is ExitCode.OK) == (f"writes {without}" not in capsys.readouterr().err)
