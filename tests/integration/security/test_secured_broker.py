"""Everything of ours over TLS, SASL and certificates on both sides; and who is not let in."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.integration.as_operated import engine, ready, working
from tests.integration.doubling import flow
from tests.integration.security.secured import KEY_PASSWORD, PASSWORD, Secured, secured_kafka

from dalsegno.client import Client, Worker
from dalsegno.ops.cli import app
from dalsegno.ops.cli.failures import ExitCode
from dalsegno.streams.client.refused import BrokerRefused, Cause
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.engine.app import Engine
from dalsegno.streams.engine.app import ExitCode as EngineExit
from dalsegno.streams.engine.settings import EngineSettings

pytestmark = pytest.mark.kafka

WRONG = "another-password"
CONNECTIONS = {
    "scram-sha-512": ("SASL", {}),
    "scram-sha-256": ("SASL", {"SASL_MECHANISM": "SCRAM-SHA-256"}),
    "plain": ("SASL", {"SASL_MECHANISM": "PLAIN"}),
    "certificates": ("MUTUAL", {}),
}
"""What an operator sets, by what it is called."""

REFUSALS = {
    Cause.CREDENTIALS: ("SASL", {"SASL_PASSWORD": WRONG}, "DALSEGNO_SASL_PASSWORD"),
    Cause.UNTRUSTED: ("SASL", {"SSL_CA_FILE": "stranger"}, "DALSEGNO_SSL_CA_FILE"),
    Cause.HOST_NAME: ("MISNAMED", {}, "not valid for '127.0.0.1'"),
    Cause.OUR_CERTIFICATE: (
        "MUTUAL",
        {"SSL_CERT_FILE": "", "SSL_KEY_FILE": ""},
        "DALSEGNO_SSL_CERT_FILE",
    ),
    Cause.NO_TLS: ("TLS", {"BOOTSTRAP_SERVERS": "plain"}, "DALSEGNO_SECURITY_PROTOCOL"),
    Cause.MECHANISM: (
        "TLS",
        {"SECURITY_PROTOCOL": "SASL_SSL", "SASL_USERNAME": "u", "SASL_PASSWORD": WRONG},
        "DALSEGNO_SASL_MECHANISM",
    ),
    Cause.SETTINGS: ("MUTUAL", {"SSL_KEY_PASSWORD": WRONG}, "DALSEGNO_SSL_KEY_PASSWORD"),
}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_kafka(tmp_path_factory.mktemp("security")) as made:
        yield made


def set_up(
    monkeypatch: pytest.MonkeyPatch, secured: Secured, prefix: str, listener: str, more: dict
) -> None:
    """The environment as an operator makes it; also of the processes that a test starts."""
    files = {"stranger": str(secured.stranger), "plain": secured.kafka.bootstrap}
    given = {name: files.get(value, value) for name, value in more.items()}
    own = {"PREFIX": prefix, "DEV": "true", "MAC_KEYS": "k1:" + "0b" * 32}
    for name, value in secured.variables(listener, **own, **given).items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("how", CONNECTIONS)
def test_topics_engine_worker_and_client_run_a_flow_over(
    how: str,
    secured: Secured,
    fresh_prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listener, more = CONNECTIONS[how]
    set_up(monkeypatch, secured, fresh_prefix, listener, more)
    assert app.run(["topics", "create", "--partitions", "2"]) == ExitCode.OK
    log = tmp_path / "engine.log"
    with engine(log) as (process, port):
        deadline_s = time.monotonic() + 60
        while not ready(port):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline_s, log.read_text()
            time.sleep(0.1)
        with working(flow) as worker, Client() as client:
            assert worker.ready.wait(40)
            runs = [client.start(flow, {"amount": n}) for n in range(6)]
            found = [client.wait(run_id, "60s").context["doubled"] for run_id in runs]
    assert found == [2 * n for n in range(6)]
    assert process.returncode == EngineExit.STOPPED, log.read_text()
    assert app.run(["verify"]) == ExitCode.OK
    said = log.read_text()
    assert PASSWORD not in said
    assert KEY_PASSWORD not in said


@pytest.mark.parametrize("cause", REFUSALS, ids=str)
def test_who_is_not_let_in_hears_in_one_line_what_to_do(
    cause: Cause,
    secured: Secured,
    *,
    fresh_prefix: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    listener, more, remedy = REFUSALS[cause]
    set_up(monkeypatch, secured, fresh_prefix, listener, more)
    assert app.run(["topics", "create"]) == ExitCode.USAGE
    assert app.run(["verify"]) == ExitCode.USAGE
    lines = capsys.readouterr().err.splitlines()
    with pytest.raises(BrokerRefused) as of_client, Client() as client:
        client.start(flow, {"amount": 1})
    with pytest.raises(BrokerRefused) as of_worker:
        Worker([flow], name=f"w-{fresh_prefix}").run()
    assert of_client.value.cause == of_worker.value.cause == cause
    assert len(lines) == 2
    for line in (*lines, str(of_client.value), str(of_worker.value)):
        assert remedy in line
        assert "\n" not in line
    everything = "\n".join([*lines, caplog.text, repr(of_client.value), repr(of_worker.value)])
    assert not [each for each in (WRONG, PASSWORD, KEY_PASSWORD) if each in everything]


@pytest.mark.parametrize("cause", [Cause.CREDENTIALS, Cause.UNTRUSTED, Cause.SETTINGS], ids=str)
def test_an_engine_that_is_not_let_in_leaves_with_its_own_code(
    cause: Cause,
    secured: Secured,
    fresh_prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listener, more, remedy = REFUSALS[cause]
    set_up(monkeypatch, secured, fresh_prefix, listener, more)
    log = tmp_path / "engine.log"
    with engine(log) as (process, _):
        assert process.wait(40) == EngineExit.START_REFUSED
    said = log.read_text()
    assert [line for line in said.splitlines() if "start refused" in line and remedy in line]
    assert "Traceback" not in said
    assert not [each for each in (WRONG, PASSWORD, KEY_PASSWORD) if each in said]


def test_one_that_is_let_in_no_more_after_the_first_answer_leaves_with_it_too(
    secured: Secured, fresh_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener, more, remedy = REFUSALS[Cause.CREDENTIALS]
    set_up(monkeypatch, secured, fresh_prefix, listener, more)

    async def answered(*_: object) -> bool:
        return True

    monkeypatch.setattr("dalsegno.streams.engine.app.wait_for_broker", answered)
    with capture_logs() as lines:
        one = Engine(EngineSettings(http_port=0), lambda *_: None, Partition, monitors=None)
        assert asyncio.run(one.run()) is EngineExit.START_REFUSED
    assert [line for line in lines if remedy in str(line.get("fault", ""))]


def test_doctor_lists_a_broker_that_refuses_us_beside_the_rest(
    secured: Secured,
    fresh_prefix: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    listener, more, remedy = REFUSALS[Cause.CREDENTIALS]
    set_up(monkeypatch, secured, fresh_prefix, listener, more)
    assert app.run(["doctor", "--json"]) == ExitCode.FOUND
    found = {each["subject"]: each for each in json.loads(capsys.readouterr().out)}
    assert found["kafka"]["health"] == "fault"
    assert remedy in found["kafka"]["detail"]
    assert found["python"]["health"] == "ok"


def test_a_check_that_was_given_up_is_given_up_by_every_client(
    secured: Secured, fresh_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_up(monkeypatch, secured, fresh_prefix, "MISNAMED", {"SSL_CHECK_HOSTNAME": "false"})
    assert app.run(["topics", "create", "--partitions", "2"]) == ExitCode.OK
    assert app.run(["verify"]) == ExitCode.OK
    with Client() as client:
        assert client.start(flow, {"amount": 1}, run_id="r1") == "r1"
