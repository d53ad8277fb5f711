"""`dalsegno faults`: what is shown, and that who and why go with what is steered."""

from __future__ import annotations

import pytest
from tests.unit.faultpoint.lab import NAME, Lab

from dalsegno.ops.cli.app import run
from dalsegno.ops.kafka import fault_points
from dalsegno.schemas.faults import FaultPointSet, HandAction
from dalsegno.streams.core.faultpoint.point import FaultPoint


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Lab:
    lab = Lab()
    lab.give(
        FaultPointSet(
            fault_point=NAME, request_id="r", action=HandAction.LIMIT, decided_by="ada",
            reason="half is away", limit=20, number=1,
        )
    )  # fmt: skip
    lab.report(2, waiting=12, name="mail", failures=5)

    def points(_settings: object) -> list[FaultPoint]:
        return sorted(lab.actors.points.values(), key=lambda point: point.name)

    monkeypatch.setattr(fault_points, "read_points", points)
    return lab


def test_the_list_says_where_each_stands(known: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["faults", "list"]) == 0
    shown = capsys.readouterr().out
    assert "ramping" in shown
    assert "open" in shown
    assert run(["faults", "list", "--json"]) == 0
    assert '"name": "mail"' in capsys.readouterr().out


def test_one_is_shown_with_who_and_why(known: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["faults", "show", NAME]) == 0
    shown = capsys.readouterr().out
    assert "ada" in shown
    assert "half is away" in shown
    assert run(["faults", "show", "mail"]) == 0
    assert "12" in capsys.readouterr().out


def test_one_that_nobody_knows_is_not_found(known: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["faults", "show", "disk"]) == 5
    assert "healthy" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "action", "limit"),
    [
        (["open", NAME], "open", 0),
        (["close", NAME], "close", 0),
        (["limit", NAME, "7"], "limit", 7),
    ],
)
def test_what_is_steered_says_who_and_why(
    words: list[str], action: str, limit: int, known: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = known.point.hand_number
    sent: list[FaultPointSet] = []
    monkeypatch.setattr(fault_points, "append_to_faults", lambda _, event: sent.append(event))
    assert run(["faults", *words, "--reason", "drill", "--by", "ada"]) == 0
    assert [(each.action, each.limit, each.decided_by, each.reason) for each in sent] == [
        (action, limit, "ada", "drill")
    ]
    assert sent[0].number > last


def test_a_control_counts_though_the_one_before_came_from_a_clock_that_is_ahead(
    known: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    known.point.hand_number = 1 << 50
    sent: list[FaultPointSet] = []
    monkeypatch.setattr(fault_points, "append_to_faults", lambda _, event: sent.append(event))
    for name in (NAME, "never heard of"):
        assert run(["faults", "open", name, "--reason", "drill"]) == 0
    assert sent[0].number == (1 << 50) + 1
    assert 0 < sent[1].number < 1 << 50


def test_a_reason_is_required() -> None:
    assert run(["faults", "open", NAME]) == 2
