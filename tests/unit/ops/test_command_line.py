"""The command line without a broker: codes, one-line errors, files, flows."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.unit.source_tree import ROOT
from typer.main import get_command

from dalsegno.client import Client, ReportsLost
from dalsegno.ops.cli import app
from dalsegno.ops.cli.failures import ExitCode
from dalsegno.ops.cli.render import plain
from dalsegno.ops.dev.env import adopt_env, read_env, write_env
from dalsegno.ops.dev.folder import DevFolder
from dalsegno.ops.flow_loader import FlowLoadError, load_flow
from dalsegno.ops.people.keys import SigningKey
from dalsegno.ops.policy_file import PolicyFileError, changes, describe, load_policy
from dalsegno.ops.run_view import run_row, task_context
from dalsegno.schemas.control import DecisionType, Policy, Webhook
from dalsegno.streams.client.errors import DeliveryFailed
from dalsegno.streams.client.producer import Producer

FLOW = """
from dalsegno.client import Flow
good = Flow("good", version=1, ttl="2h")

@good.step(reads=[], writes=["x"], timeout="1s")
def one(ctx):
    return {"x": 1}

bad = Flow("bad", version=1, ttl="2h")

@bad.step(timeout="1s")
def undeclared(ctx):
    return {}
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder and an environment without settings of ours."""
    monkeypatch.chdir(tmp_path)
    for name in ("BOOTSTRAP_SERVERS", "PREFIX", "MAC_KEYS", "DEV"):
        monkeypatch.delenv(f"DALSEGNO_{name}", raising=False)
    return tmp_path


@pytest.fixture
def flows(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (elsewhere / "flows_here.py").write_text(FLOW)
    monkeypatch.syspath_prepend(str(elsewhere))


def options_of(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """(command, option) of everything below a command."""
    for name, below in getattr(command, "commands", {}).items():
        yield from options_of(below, (*path, name))
    for parameter in command.params:
        for option in parameter.opts:
            if option.startswith("--"):
                yield " ".join(path), option


def test_the_page_names_every_command_and_option() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    found = sorted(set(options_of(get_command(app.build()), ())))
    assert len({command for command, _ in found}) > 35
    for command, option in found:
        head, _, verb = command.partition(" ")
        assert f"`{head}" in page, command
        assert f"`{verb}`" in page or f"{head} {verb}".rstrip() in page, command
        assert option in page or option == "--help", f"{command} {option}"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nonsense"], ExitCode.USAGE, "No such command 'nonsense'"),
        (["show"], ExitCode.USAGE, "Missing argument"),
        (["runs", "--limit", "0"], ExitCode.USAGE, "--limit"),
        (["schemas", "show", "Nix"], ExitCode.NOT_FOUND, "no schema Nix"),
        (["check", "flows_here"], ExitCode.USAGE, "write MODULE:FLOW"),
        (["check", "not_there_at_all:x"], ExitCode.USAGE, "no module 'not_there_at_all'"),
        (["start", "x:y", "--input", "[1]"], ExitCode.USAGE, "no module 'x'"),
        (["start", "flows_here:good", "--input", "[1]"], ExitCode.USAGE, "got `array`"),
        (["start", "flows_here:good", "--input", "{x"], ExitCode.USAGE, "JSON is malformed"),
        (["start", "flows_here:good", "--input", "x.json"], ExitCode.USAGE, "x.json: No such file"),
        (["start", "flows_here:good", "--wait", "banana"], ExitCode.USAGE, "--wait: 'banana'"),
        (["runs", "--state", "banana"], ExitCode.USAGE, "write one of running, waiting"),
        (["policy", "apply", "no.toml"], ExitCode.USAGE, "DALSEGNO_MAC_KEYS"),
        (
            ["dev", "--folder", "flows_here.py/x"],
            ExitCode.USAGE,
            "flows_here.py/x: Not a directory",
        ),
        (["dev", "--port", "70000"], ExitCode.USAGE, "--port"),
        (["policy", "show"], ExitCode.USAGE, "DALSEGNO_MAC_KEYS"),
        (
            ["--bootstrap-servers", "127.0.0.1:1", "runs"],
            ExitCode.UNAVAILABLE,
            "start the brokers, or name them in DALSEGNO_BOOTSTRAP_SERVERS",
        ),
    ],
)
@pytest.mark.usefixtures("flows")
def test_a_failure_is_one_line_and_a_code(
    arguments: list[str], code: ExitCode, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(arguments) == code
    line = capsys.readouterr().err
    assert said in line
    assert line.startswith("dalsegno: ")
    assert line.count("\n") == 1


def test_reports_that_a_worker_has_lost_are_told_of_with_a_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert app.ended_by(ReportsLost("w", 2)) == ExitCode.UNAVAILABLE
    assert "2 reports that no broker has acknowledged" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("_TRANSPORT", "name them in DALSEGNO_BOOTSTRAP_SERVERS"),
        ("_ALL_BROKERS_DOWN", "name them in DALSEGNO_BOOTSTRAP_SERVERS"),
        ("_TIMED_OUT", "name them in DALSEGNO_BOOTSTRAP_SERVERS"),
        ("POLICY_VIOLATION", "Kafka refused it (POLICY_VIOLATION)"),
    ],
)
def test_what_kafka_raised_is_told_in_words(
    kind: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    error = KafkaError(getattr(KafkaError, kind))
    assert app.ended_by(KafkaException(error)) == ExitCode.UNAVAILABLE
    line = capsys.readouterr().err
    assert said in line
    assert error.str() in line
    assert "KafkaError{" not in line


@pytest.mark.usefixtures("flows")
def test_a_start_without_kafka_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unreachable(_producer: Producer, topic: str) -> int:
        raise DeliveryFailed(topic, b"", "_TRANSPORT", "Local: Broker transport failure")

    monkeypatch.setattr(Producer, "partition_count", unreachable)
    arguments = ["--bootstrap-servers", "127.0.0.1:1", "start", "flows_here:good"]
    assert app.run([*arguments, "--run-id", "r-1"]) == ExitCode.UNAVAILABLE
    line = capsys.readouterr().err
    assert line.startswith("dalsegno: no Kafka at 127.0.0.1:1: _TRANSPORT")
    assert "`dalsegno dev`" in line
    assert line.endswith("repeat with --run-id r-1\n")
    assert line.count("\n") == 1


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("TOPIC_AUTHORIZATION_FAILED", "kafka-acls"),
        ("MSG_SIZE_TOO_LARGE", "never takes this start"),
    ],
)
@pytest.mark.usefixtures("flows")
def test_a_start_that_kafka_never_takes_is_not_worth_a_retry(
    kind: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(_client: Client, *_: object, **__: object) -> None:
        raise DeliveryFailed("dalsegno.events", b"r-1", kind, "no", retriable=False)

    monkeypatch.setattr(Client, "start", refused)
    arguments = ["--bootstrap-servers", "127.0.0.1:1", "start", "flows_here:good"]
    assert app.run(arguments) == ExitCode.USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert kind in line
    assert said in line
    assert "dalsegno.events" in line


@pytest.mark.parametrize("arguments", [[], ["topics"], ["dead-letters"]])
def test_a_group_without_a_command_shows_its_help(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(arguments) == ExitCode.USAGE
    assert "Usage: dalsegno" in capsys.readouterr().out


def test_the_contract_is_compatible_and_can_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["schemas", "check"]) == ExitCode.OK
    capsys.readouterr()
    assert app.run(["schemas", "show", "--json"]) == ExitCode.OK
    kinds = {row["kind"] for row in json.loads(capsys.readouterr().out)}
    assert {"RunStarted", "Handoff", "ClockTick"} <= kinds
    assert app.run(["schemas", "show", "RunStarted"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["name"] == "RunStarted"


def test_the_contract_is_exported_to_a_file(elsewhere: Path) -> None:
    assert app.run(["schemas", "export", "--output", "api.json", "--prefix", "px"]) == ExitCode.OK
    document = json.loads((elsewhere / "api.json").read_text())
    assert document["asyncapi"].startswith("3.")
    assert document["channels"]["events"]["address"] == "px.events"


@pytest.mark.usefixtures("flows")
def test_check_tells_what_to_mend(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["check", "flows_here:good"]) == ExitCode.OK
    capsys.readouterr()
    assert app.run(["check", "flows_here:good", "flows_here:bad", "--json"]) == ExitCode.FOUND
    found = json.loads(capsys.readouterr().out)
    assert [(each["flow"], each["severity"], each["step"]) for each in found] == [
        ("flows_here:bad", "error", "undeclared")
    ]


@pytest.mark.usefixtures("flows")
def test_a_flow_that_is_not_there_is_told_with_those_that_are() -> None:
    with pytest.raises(FlowLoadError, match="good, bad"):
        load_flow("flows_here:other")


def test_a_policy_file_changes_only_what_it_says(elsewhere: Path) -> None:
    file = elsewhere / "policy.toml"
    file.write_text('start_limit_ms = 5\nschemas = ["00ff"]\n[retry_default]\nmax_attempts = 9\n')
    policy = load_policy(file, Policy())
    assert {name for name, _, _ in changes(Policy(), policy)} == {
        "start_limit_ms",
        "schemas",
        "retry_default",
    }
    assert policy.schemas == (b"\x00\xff",)
    assert policy.retry_default.max_attempts == 9
    assert policy.retry_default.max_ms == Policy().retry_default.max_ms
    again = elsewhere / "again.json"
    again.write_text(json.dumps(describe(policy)))
    assert load_policy(again, Policy()) == policy


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("start = 5", "start is no setting"),
        ('start_limit_ms = "5"', "start_limit_ms"),
        ("[retry_default]\nmax = 1", "retry_default.max is no setting"),
        ('schemas = ["xyz"]', "hexadecimal"),
        ("start_limit_ms = ", "policy.toml"),
    ],
)
def test_a_policy_file_that_is_wrong_is_refused(elsewhere: Path, text: str, said: str) -> None:
    file = elsewhere / "policy.toml"
    file.write_text(text)
    with pytest.raises(PolicyFileError, match=said):
        load_policy(file, Policy())


def test_a_policy_file_lists_webhooks_and_the_rights_of_keys(elsewhere: Path) -> None:
    file = elsewhere / "policy.toml"
    file.write_text(
        '[[webhooks]]\nname = "desk"\nurl = "https://desk.example/in"\nkey_id = "w1"\n'
        f'[[decision_keys]]\nkey_id = "a"\npublic_key = "{"00" * 32}"\nholder = "ana"\n'
        'decisions = ["approve", "reject"]\nflows = ["cards"]\n'
    )
    policy = load_policy(file, Policy())
    assert policy.webhooks == (Webhook(name="desk", url="https://desk.example/in", key_id="w1"),)
    (key,) = policy.decision_keys
    assert (key.flows, key.decisions) == (("cards",), (DecisionType.APPROVE, DecisionType.REJECT))
    again = elsewhere / "again.json"
    again.write_text(json.dumps(describe(policy)))
    assert load_policy(again, Policy()) == policy
    file.write_text('[[webhooks]]\nname = "desk"\nuri = "https://desk.example/in"\n')
    with pytest.raises(PolicyFileError, match=r"webhooks\.uri is no setting"):
        load_policy(file, Policy())


def test_a_new_key_prints_what_a_policy_lists_with_its_limits(
    elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = ["keys", "new", "cem", "--flow", "cards", "--decision", "approve", "--decision", "retry"]
    assert app.run([*said, "--out", str(elsewhere / "cem.json")]) == ExitCode.OK
    file = elsewhere / "policy.toml"
    file.write_text(capsys.readouterr().out)
    (key,) = load_policy(file, Policy()).decision_keys
    assert (key.key_id, key.holder, key.flows) == ("cem-1", "cem", ("cards",))
    assert key.decisions == (DecisionType.APPROVE, DecisionType.RETRY)
    assert key == msgspec.structs.replace(
        SigningKey.read(elsewhere / "cem.json").public, flows=key.flows, decisions=key.decisions
    )


def test_what_dev_leaves_is_found_by_others_and_yields_to_the_environment(elsewhere: Path) -> None:
    path = write_env(elsewhere, {"DALSEGNO_BOOTSTRAP_SERVERS": "a:1", "DALSEGNO_PREFIX": "p=q"})
    assert path.stat().st_mode & 0o077 == 0
    path.write_text(path.read_text() + "LD_PRELOAD=evil\n")
    assert "LD_PRELOAD" not in read_env(elsewhere)
    empty: dict[str, str] = {"DALSEGNO_PREFIX": "mine"}
    assert adopt_env(empty, elsewhere)
    assert empty == {"DALSEGNO_BOOTSTRAP_SERVERS": "a:1", "DALSEGNO_PREFIX": "mine"}
    named = {"DALSEGNO_BOOTSTRAP_SERVERS": "b:2"}
    assert not adopt_env(named, elsewhere)
    assert named == {"DALSEGNO_BOOTSTRAP_SERVERS": "b:2"}


def test_the_key_of_a_data_folder_is_made_once(elsewhere: Path) -> None:
    folder = DevFolder.open(elsewhere / "data")
    key = folder.mac_keys()
    assert DevFolder.open(elsewhere / "data").mac_keys() == key
    assert (folder.path / "mac-keys").stat().st_mode & 0o077 == 0
    assert len(bytes.fromhex(key.removeprefix("dev:"))) == 32


def test_show_opens_with_a_task_context() -> None:
    run = {
        "run_id": "r-1",
        "state": "running",
        "flow": "f",
        "flow_version": 2,
        "run_version": 3,
        "started_ms": 1_000,
        "updated_ms": 2_500,
        "expires_ms": 0,
        "steps_left": 1,
        "context": "gaFhAQ==",
        "steps": [
            {"step": "a", "state": "completed", "epoch": 1},
            {"step": "b", "state": "backing_off", "epoch": 2},
            {"step": "c", "state": "running", "epoch": 4},
        ],
    }
    opening = task_context(run)
    assert list(opening) == [
        "trace_id",
        "stage",
        "payload",
        "step_token",
        "created_at",
        "updated_at",
        "expires_at",
    ]
    assert opening["trace_id"] == "r-1"
    assert opening["stage"] == "c"
    assert opening["payload"] == {"a": 1}
    assert opening["step_token"] == "c:4"
    assert opening["created_at"] == "1970-01-01T00:00:01.000+00:00"
    assert opening["expires_at"] is None
    assert run_row(run)[4:6] == ("2/3", "c (running)")


def test_json_takes_what_contexts_hold() -> None:
    assert plain({"a": b"\x00", "b": float("nan"), "c": (1, None)}) == {
        "a": "AA==",
        "b": "nan",
        "c": [1, None],
    }
    with pytest.raises(TypeError, match="object"):
        plain(object())
