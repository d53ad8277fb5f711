"""What the command line says: its help and the history of a run."""

import re
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException

from dalsegno import __version__
from dalsegno.ops.cli import app
from dalsegno.ops.cli.failures import ExitCode
from dalsegno.ops.folding import Folded, fold_records
from dalsegno.ops.kafka.writer import NoKeyError
from dalsegno.ops.replaying import transitions_of
from dalsegno.schemas.control import StallSuspected, Verdict
from dalsegno.schemas.outputs import Outcome, RunState, Transition
from dalsegno.streams.client.refused import BrokerRefused, Cause
from dalsegno.streams.core.actions import Audit
from dalsegno.streams.engine.errors import RestoreError
from dalsegno.streams.engine.settings import EngineSettings


def test_the_help_has_whole_sentences_and_every_exit_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert app.run(["--help"]) == ExitCode.OK
    text = capsys.readouterr().out
    assert "..." not in text.split("Commands:")[1]
    assert set(re.findall(r"\b(\d+)\s+[a-zK]", text.split("Exit codes:")[1])) == {
        str(int(code)) for code in ExitCode
    }


RIGHT = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)


@pytest.mark.parametrize(
    ("error", "code", "remedy"),
    [
        (TimeoutError(), ExitCode.UNAVAILABLE, "DALSEGNO_BOOTSTRAP_SERVERS"),
        (KafkaException(RIGHT), ExitCode.USAGE, "kafka-acls"),
        (BrokerRefused(Cause.CREDENTIALS, "b:1", "x"), ExitCode.USAGE, "DALSEGNO_SASL_PASSWORD"),
        (RestoreError("no answer while reading"), ExitCode.UNAVAILABLE, "no answer"),
    ],
)
def test_whatever_a_broker_refuses_ends_in_one_line_and_a_code(
    error: Exception, code: ExitCode, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.ended_by(error) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert remedy in line


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["--version"]) == ExitCode.OK
    assert capsys.readouterr().out == f"dalsegno {__version__}\n"


def test_the_history_says_which_verdict_was_applied() -> None:
    verdict = StallSuspected(
        run_id="r",
        source="monitor",
        step="pay",
        epoch=1,
        verdict=Verdict.REPLACED,
        events_offset=1,
        heartbeats_at_ms=1,
        evidence="incarnation 7 said hello",
    )
    transition = Transition(
        run_id="r",
        cause="StallSuspected",
        cause_offset=4,
        at_ms=1,
        outcome=Outcome.APPLIED,
        reason="",
        run_version_before=2,
        run_version_after=2,
        run_state_before=RunState.RUNNING,
        run_state_after=RunState.RUNNING,
    )
    late = msgspec.structs.replace(transition, cause="timer:step_timeout")
    outputs = [SimpleNamespace(action=Audit(each)) for each in (late, transition)]
    folded = cast("Folded", SimpleNamespace(record=SimpleNamespace(event=verdict), outputs=outputs))
    reasons = [each.reason for each in transitions_of(iter([folded]), "r", None)]
    assert reasons == ["", "replaced: incarnation 7 said hello"]


def test_a_log_is_not_folded_without_a_key() -> None:
    # Verdicts and policies would count as forged, and the history told would be another one.
    with pytest.raises(NoKeyError, match="DALSEGNO_MAC_KEYS"):
        next(fold_records(EngineSettings(mac_keys={}), [], 0, 1))
