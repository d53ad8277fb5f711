"""A worker starts without what only other commands need."""

import inspect
import subprocess
import sys

import pytest

from dalsegno.ops import work
from dalsegno.ops.cli import quick_worker, worker
from dalsegno.ops.cli.quick_worker import Plain, read
from dalsegno.streams.engine.settings import EngineSettings


@pytest.mark.parametrize(
    ("line", "plain"),
    [
        ("worker m:f", Plain(("m:f",))),
        ("worker m:f n:g --name w", Plain(("m:f", "n:g"), "w")),
        ("worker --concurrency 7 m:f", Plain(("m:f",), concurrency=7)),
        ("worker --name=w --concurrency=7 m:f", Plain(("m:f",), "w", 7)),
        ("worker m:f --queue a --queue=b", Plain(("m:f",), queues=("a", "b"))),
    ],
)
def test_plain_command_lines_are_read(line: str, plain: Plain) -> None:
    assert read(line.split()) == plain


@pytest.mark.parametrize(
    "line",
    [
        "",
        "engine",
        "worker",
        "worker --help",
        "worker m:f --nmae w",
        "worker m:f --name",
        "worker m:f --queue",
        "worker m:f --concurrency many",
        "worker m:f --concurrency 0",
        "--prefix p worker m:f",
        "worker -- m:f",
    ],
)
def test_everything_else_is_left_to_the_tree_of_commands(line: str) -> None:
    assert read(line.split()) is None


def test_the_defaults_are_those_of_the_command() -> None:
    default = inspect.signature(worker.worker).parameters["concurrency"].default
    assert default == quick_worker.CONCURRENCY_DEFAULT
    assert EngineSettings.model_fields["bootstrap_servers"].default == (
        quick_worker.BOOTSTRAP_DEFAULT
    )


def test_a_worker_that_was_told_no_broker_says_where_it_looks(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Idle:
        def __init__(self, *_: object, **__: object) -> None: ...
        def run(self) -> None: ...

    monkeypatch.setattr(work, "Worker", Idle)
    monkeypatch.setattr(work, "configure", lambda _: None)

    def said() -> str:
        servers = "127.0.0.1:9092"
        work.work(
            (), bootstrap_servers=servers, prefix="", name="", concurrency=1, log_level="info"
        )
        return caplog.text

    monkeypatch.setenv("DALSEGNO_BOOTSTRAP_SERVERS", "a:1")
    assert said() == ""
    monkeypatch.delenv("DALSEGNO_BOOTSTRAP_SERVERS")
    assert "`dalsegno dev` in this folder: trying 127.0.0.1:9092" in said()


def test_a_worker_needs_none_of_the_heavy_libraries() -> None:
    heavy = "{'typer', 'pydantic', 'rich', 'fastavro', 'faust', 'aiohttp'}"
    code = f"import sys, dalsegno.ops.work; print({heavy} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"


@pytest.mark.parametrize(
    ("modules", "heavy"),
    [
        ("ops.cli.app", {"pydantic", "confluent_kafka", "aiokafka", "rich", "boto3", "faust"}),
        ("ops.kafka.reader, dalsegno.ops.kafka.writer, dalsegno.ops.people.deciding",
         {"boto3", "faust", "aiohttp", "fastavro"}),
    ],
)  # fmt: skip
def test_commands_import_only_what_they_need(modules: str, heavy: set[str]) -> None:
    code = f"import sys, dalsegno.{modules}; print({heavy} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"


def test_what_ends_a_worker_is_told_in_one_line() -> None:
    command = [sys.executable, "-m", "dalsegno.ops.cli", "worker", "no_such_module:flow"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert ran.stderr.startswith("dalsegno: no module 'no_such_module'")
