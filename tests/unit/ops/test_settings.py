"""Settings: every one is documented, a wrong one is named as it has to be mended, and what nothing
reads is told of.
"""

import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.source_tree import ROOT

from dalsegno.ops.cli import app
from dalsegno.ops.cli.failures import ExitCode
from dalsegno.ops.variables import unread, variables
from dalsegno.streams.engine.metrics import EngineMetrics
from dalsegno.streams.engine.settings import EngineSettings
from dalsegno.streams.engine.web import EngineWeb


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder of `dalsegno dev` that settings could come from."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("MAC_KEYS", "no colon", "id:hex"),
        ("MAC_KEYS", "k1:zz", "no hex"),
        ("MAC_KEYS", "k1:abcd", "at least 16"),
        ("MAC_KEYS", ":" + "ab" * 32, "key id"),
        ("MAC_KEYS", f"k1:{'ab' * 32},k1:{'cd' * 32}", "twice"),
        ("WEBHOOK_SECRETS", f"w:whsec_{'YWJj' * 12},w:whsec_{'ZGVm' * 12}", "twice"),
        ("ARCHIVE_ENCRYPTION", "rot13", "AES256"),
        ("BLOB_GRACE_MS", "5", "1000"),
        ("SECURITY_PROTOCOL", "TLS", "SASL_SSL"),
        ("HTTP_URL", "engine1:8470", "http://"),
        ("MEMORY_BYTES_MAX", "70000", "DALSEGNO_MEMORY_BYTES"),
        ("SESSION_TIMEOUT_MS", "1000", "DALSEGNO_HEARTBEAT_INTERVAL_MS"),
        ("HEALTH_FUNCTIONS", "no_colon", "module:function"),
    ],
)
def test_settings_that_are_wrong_are_named(
    name: str,
    text: str,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The variable as it has to be mended, in one line, and no key."""
    monkeypatch.setenv(f"DALSEGNO_{name}", text)
    assert app.run(["topics", "check"]) == ExitCode.USAGE
    line = capsys.readouterr().err
    assert line.startswith(f"dalsegno: DALSEGNO_{name}")
    assert says in line
    assert "abab" not in line


def test_a_variable_that_nothing_reads_is_told_of() -> None:
    environ = {"DALSEGNO_CHECKPOINT_INTERVALL_MS": "9", "DALSEGNO_ERASURE": "true", "PATH": "/"}
    (said,) = unread(environ)
    assert said.startswith("DALSEGNO_CHECKPOINT_INTERVALL_MS is read by nothing")
    assert "DALSEGNO_CHECKPOINT_INTERVAL_MS" in said
    assert "9" not in said


def test_what_kubernetes_sets_for_a_service_of_our_name_is_not_told_of() -> None:
    environ = {
        "DALSEGNO_SERVICE_HOST": "10.0.0.1",
        "DALSEGNO_SERVICE_PORT_HTTP": "8470",
        "DALSEGNO_PORT": "tcp://10.0.0.1:8470",
        "DALSEGNO_PORT_8470_TCP_ADDR": "10.0.0.1",
    }
    assert unread(environ) == []
    (said,) = unread({"DALSEGNO_PORT": "8470"})
    assert "DALSEGNO_HTTP_PORT?" in said


def test_every_variable_of_ours_is_known_and_documented() -> None:
    pages = " ".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md"))
    pages = re.sub(r"`…_([A-Z_]+)`", r"`…_\1`", pages)
    for name in variables():
        tail = name.removeprefix("DALSEGNO_").removeprefix("ARCHIVE").removeprefix("BLOB")
        assert f"`{name}`" in pages or f"`…{tail}`" in pages, name
    written = {
        name
        for folder in ("streams", "storage", "schemas", "ops")
        for path in (ROOT / folder).rglob("*.py")
        for name in re.findall(r"\bDALSEGNO_[A-Z_]*[A-Z]\b(?!_)", path.read_text(encoding="utf-8"))
    }
    assert written <= set(variables())


def test_an_engine_whose_port_is_taken_says_so_in_a_line_and_may_be_restarted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "dalsegno.ops.cli", "engine", "--port", port]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 1
    said = json.loads(ended.stderr.splitlines()[-1])
    assert said["variables"] == "DALSEGNO_HTTP_HOST, DALSEGNO_HTTP_PORT"
    assert port in said["error"]
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
async def test_an_engine_on_all_addresses_calls_itself_by_its_host_name(host: str) -> None:
    """Others could not reach it under the address that stands for all."""
    web = EngineWeb(EngineSettings(http_host=host, http_port=0), EngineMetrics())
    try:
        assert (await web.start()).startswith(f"http://{socket.gethostname()}:")
    finally:
        await web.close()
