"""People on a real Kafka: a run fails for good, a person decides, the run ends right."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.engine.harness import Lab, wait_for, working

from dalsegno.client import Client, Context, Flow, Permanent, RunState
from dalsegno.ops.cli import app
from dalsegno.ops.cli.failures import ExitCode
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.engine.verify import verify

pytestmark = pytest.mark.kafka

cards = Flow("cards", version=1, ttl="30m", secrets=["card"])


@cards.step(reads=["limit"], writes=["quote"])
async def quote(ctx: Context) -> dict[str, object]:
    return {"quote": ctx["limit"]}


@cards.step(needs=[quote], reads=["quote", "card", "limit"], writes=["receipt"])
async def charge(ctx: Context) -> dict[str, object]:
    if ctx["limit"] == 0:
        raise Permanent("declined", message=f"card {ctx['card']} has no limit")
    return {"receipt": "paid"}


@cards.step(
    needs=[charge], reads=["receipt"], writes=["sent"], risk="external",
    risk_reason="mail cannot be called back",
)  # fmt: skip
async def tell(ctx: Context) -> dict[str, object]:
    return {"sent": ctx["receipt"]}


@pytest.fixture
def served(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """An engine and a worker, and the command line's settings for them."""
    for name, value in lab.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DALSEGNO_DECISION_KEY", str(lab.folder / "ana.json"))
    engine = lab.engine(fold="core")
    engine.wait_ready()
    with working(lab, cards):
        yield lab


class Desk:
    """What a person at a terminal does."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def packages(self, *options: str) -> list[dict[str, object]]:
        self._capsys.readouterr()
        assert app.run(["escalations", "list", "--json", *options]) == ExitCode.OK
        found = json.loads(self._capsys.readouterr().out)
        assert isinstance(found, list)
        return found

    def wait(self, *options: str, count: int = 1) -> list[str]:
        """Names of the open packages, once there are so many."""
        found = wait_for(
            f"{count} packages",
            lambda: [p for p in [self.packages(*options)] if len(p) == count],
        )
        return [str(each["escalation_id"]) for each in found[0]]

    def run(self, *arguments: str) -> tuple[int, str]:
        self._capsys.readouterr()
        code = app.run(["escalations", *arguments])
        said = self._capsys.readouterr()
        return code, said.out + said.err


def key(path: Path, holder: str, *options: str) -> None:
    assert app.run(["keys", "new", holder, "--out", str(path), *options]) == ExitCode.OK


def test_a_run_that_failed_is_decided_by_a_person_and_ends_right(
    served: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    desk = Desk(capsys)
    key(served.folder / "ana.json", "ana", "--allow")
    key(served.folder / "eve.json", "eve")
    client = Client(bootstrap_servers=served.bootstrap, prefix=served.prefix)
    run_id = client.start(cards, {"limit": 0, "card": "4111-1111"})
    (name,) = desk.wait("--step", "charge")

    code, text = desk.run("show", name)
    assert code == ExitCode.OK
    assert "How does the run go on, now that step charge cannot?" in text
    assert "retry: Step charge runs again" in text
    assert "4111" not in text

    code, text = desk.run(
        "decide", "retry", name, "--reason", "let me", "--key", str(served.folder / "eve.json")
    )
    assert (code, "unknown_decision_key" in text) == (ExitCode.REFUSED, True)

    code, text = desk.run("decide", "edit", name, "--set", "limit=100", "--reason", "raised it")
    assert (code, text.strip()) == (ExitCode.OK, f"{name}: taken")
    code, _ = desk.run("decide", "cancel", name, "--reason", "too late")
    assert code == ExitCode.NOT_FOUND, "it is not open any more"

    (name,) = desk.wait("--step", "tell")
    code, text = desk.run("decide", "approve", name, "--reason", "fine")
    assert code == ExitCode.OK, text
    result = client.wait(run_id, "60s")
    assert result.state is RunState.SUCCEEDED
    assert result.context["sent"] == "paid"
    client.close()
    for report in verify(served.settings, Partition, served.partitions):
        assert report.right, report.differences


def test_a_frozen_list_is_judged_package_by_package(
    served: Lab, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    desk = Desk(capsys)
    key(served.folder / "ana.json", "ana", "--allow")
    client = Client(bootstrap_servers=served.bootstrap, prefix=served.prefix)
    runs = [client.start(cards, {"limit": 0, "card": "x"}) for _ in range(5)]
    names = desk.wait("--step", "charge", count=5)
    frozen = tmp_path / "list"
    assert desk.run("list", "--freeze", str(frozen))[0] == ExitCode.OK
    assert desk.run("decide", "cancel", names[0], "--reason", "first")[0] == ExitCode.OK
    code, text = desk.run("decide", "cancel", "--bulk", str(frozen), "--reason", "all", "--json")
    assert code == ExitCode.FOUND
    outcomes = {each["package"]: each["outcome"] for each in json.loads(text)}
    assert outcomes.pop(names[0]) == "already_decided"
    assert list(outcomes.values()) == ["taken"] * 4
    for run_id in runs:
        assert client.wait(run_id, "60s").state is RunState.CANCELLED
    assert desk.packages() == []
    client.close()


def test_a_list_says_what_became_of_each_line_also_when_nobody_answers(
    served: Lab, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    desk = Desk(capsys)
    key(served.folder / "ana.json", "ana", "--allow")
    limited = served.folder / "cem.json"
    key(limited, "cem", "--allow", "--decision", "approve")
    client = Client(bootstrap_servers=served.bootstrap, prefix=served.prefix)
    runs = [client.start(cards, {"limit": 0, "card": "x"}) for _ in range(3)]
    names = desk.wait("--step", "charge", count=3)
    frozen = tmp_path / "list"
    assert desk.run("list", "--freeze", str(frozen))[0] == ExitCode.OK
    code, text = desk.run("decide", "cancel", names[0], "--reason", "no", "--key", str(limited))
    assert (code, "not_allowed" in text) == (ExitCode.REFUSED, True)
    (engine,) = served.engines
    engine.kill()
    bulk = ("decide", "cancel", "--bulk", str(frozen), "--reason", "all", "--wait-s", "1")
    code, text = desk.run(*bulk)
    assert code == ExitCode.UNAVAILABLE
    assert text.count("no outcome yet") == 3
    assert "0 of 3 taken" in text
    engine.restart()
    for run_id in runs:
        assert client.wait(run_id, "90s").state is RunState.CANCELLED
    client.close()
