"""The peers of the crash workload that have a server of their own: how they come, how they are
driven.
"""

import asyncio
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from benchmarks.crash_lab import littlehorse, temporal
from benchmarks.crash_lab.driving import AT_ONCE, Driver, until
from benchmarks.crash_lab.installing import NotInstallable

from dalsegno.ops.embedded import JarsUnavailableError, JavaNotFoundError
from dalsegno.ops.embedded.java import Java

JAVA = Java("/opt/java/bin/java", littlehorse.JAVA_FEATURE_MIN, b"")


@pytest.fixture(autouse=True)
def _no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporal, "CACHE", tmp_path)
    for module in (temporal, littlehorse):
        monkeypatch.setattr(module, "python_with", lambda *_: Path("python"))
    monkeypatch.setattr(littlehorse, "find_java", lambda: JAVA)
    monkeypatch.setattr(littlehorse, "fetch_jars", lambda *_: ["a.jar"])


def on_path(monkeypatch: pytest.MonkeyPatch, *programs: str) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}" if name in programs else None)


def test_a_temporal_on_the_path_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path(monkeypatch, "temporal")
    system = temporal.install()()
    environment = system._prepare(tmp_path, ExitStack())
    command = system._server_command(tmp_path)
    assert environment["TEMPORAL_SERVER"].endswith(f":{command[command.index('--port') + 1]}")
    assert command[:3] == ["/bin/temporal", "server", "start-dev"]


def test_without_temporal_and_go_the_reason_names_both(monkeypatch: pytest.MonkeyPatch) -> None:
    on_path(monkeypatch)
    with pytest.raises(NotInstallable, match="neither temporal nor go"):
        temporal.install()


def test_temporal_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path(monkeypatch, "go")
    built: list[Sequence[str]] = []

    def run(command: Sequence[str], *, env: dict[str, str], **_: object) -> None:
        built.append(command)
        (Path(env["GOBIN"]) / "temporal").touch()

    monkeypatch.setattr(subprocess, "run", run)
    for _ in range(2):
        temporal.install()
    assert built == [["/bin/go", "install", temporal.MODULE]]


def test_a_build_that_fails_is_told_with_its_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    on_path(monkeypatch, "go")

    def run(*_: object, **__: object) -> None:
        raise subprocess.CalledProcessError(1, "go", stderr=b"go: downloading\nno such host\n")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(NotInstallable, match=r"v1\.5\.1 failed: no such host"):
        temporal.install()


def test_littlehorse_needs_a_java_that_is_new_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    assert littlehorse.install()().name == "littlehorse"
    old = Java(JAVA.path, JAVA.feature - 1, b"")
    monkeypatch.setattr(littlehorse, "find_java", lambda: old)
    with pytest.raises(NotInstallable, match=f"{JAVA.path} is {old.feature}"):
        littlehorse.install()


@pytest.mark.parametrize(
    ("what", "error"),
    [("find_java", JavaNotFoundError("no Java")), ("fetch_jars", JarsUnavailableError("no jars"))],
)
def test_littlehorse_tells_what_could_not_be_had(
    what: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(littlehorse, what, fail)
    with pytest.raises(NotInstallable, match=str(error)):
        littlehorse.install()


async def others_have_run() -> None:
    """Every task that can has come to where it waits."""
    for _ in range(100):
        await asyncio.sleep(0)


class Counting(Driver):
    """Its server answers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.answers = asyncio.Event()

    async def _start(self, run: str) -> None:
        self.asked.append(run)
        await self.answers.wait()

    async def _result(self, run: str) -> int:
        return len(run)


async def test_so_many_runs_are_started_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRASH_FOLDER", str(tmp_path))
    (tmp_path / "go").touch()
    driver, runs = Counting(), [f"r{number}" for number in range(2 * AT_ONCE)]
    async with asyncio.timeout(30):
        submitting = asyncio.create_task(driver.submit(runs))
        await others_have_run()
        assert driver.asked == runs[:AT_ONCE]
        driver.answers.set()
        await submitting
    assert driver.asked == runs


async def test_a_submission_waits_until_its_runs_stand_at_the_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRASH_FOLDER", str(tmp_path))
    (tmp_path / "held").mkdir()
    driver = Counting()
    driver.answers.set()
    async with asyncio.timeout(30):
        submitting = asyncio.create_task(driver.submit(["r0"]))
        await others_have_run()
        assert not submitting.done()
        (tmp_path / "held" / "r0").touch()
        await submitting


async def test_a_server_that_is_away_is_asked_again_and_other_errors_are_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("benchmarks.crash_lab.driving.RETRY_S", 0.0)
    answers: list[int | Exception] = [ConnectionError(), ConnectionError(), 7, ValueError("wrong")]

    async def ask() -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with asyncio.timeout(5):
        assert await until(ask, ConnectionError) == 7
        with pytest.raises(ValueError, match="wrong"):
            await until(ask, ConnectionError)
