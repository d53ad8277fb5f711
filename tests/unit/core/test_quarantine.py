"""A quarantined run is put before a person, its workers stop, and nobody watches it for nothing."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.unit.core.log import (
    Log,
    answers,
    assert_restores,
    chain,
    dead_letters,
    escalations,
    plan_of,
    step,
    transitions,
    view,
)

from dalsegno.schemas.control import Policy
from dalsegno.schemas.events import EffectIntended, RiskFlagged, RunCancelled, StepProgressed
from dalsegno.schemas.outputs import AnswerType, Outcome, RunState
from dalsegno.streams.core.actions import Output
from dalsegno.streams.core.partition import Partition

WAIT_MS = Policy().person_wait_ms


def raising(*_: object, **__: object) -> None:
    raise ZeroDivisionError("ours")


def broken(monkeypatch: pytest.MonkeyPatch, log: Log) -> list[Output]:
    """An event on which the fold raises."""
    with monkeypatch.context() as patch:
        patch.setattr("dalsegno.streams.core.lifecycle.raise_flags", raising)
        return log.put(RiskFlagged(run_id="r", flag_id=f"{len(log.records)}", flag="odd"))


def test_a_person_is_asked_with_what_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    log.start(chain(1), ttl_ms=60_000)
    log.began("s0")
    out = broken(monkeypatch, log)
    (asked,) = escalations(out)
    assert (asked.reason, asked.asked, asked.run_id) == ("quarantined", "decision", "r")
    assert "ours" in asked.message
    assert asked.answer_by_ms == view(log).expires_ms, "then the run expires: its next action"
    assert len(transitions(out)) == len(dead_letters(out)) == 1
    assert_restores(log)


def test_its_attempts_are_told_and_leave_the_flight_while_late_reports_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log()
    log.start(plan_of(step("a"), step("b"), step("c")))
    log.began("a", reply_to="worker a")
    log.began("b", reply_to="worker b")
    log.start(chain(1), run_id="other")
    assert log.partition.in_flight == 4
    log.partition.drain_in_flight()
    out = broken(monkeypatch, log)
    told = [(a.reply_to, a.step, a.epoch, a.answer, a.reason) for a in answers(out)]
    assert told == [
        ("worker a", "a", 1, AnswerType.CANCELLED, "quarantined"),
        ("worker b", "b", 1, AnswerType.CANCELLED, "quarantined"),
    ]
    assert log.partition.in_flight == 1
    gone = dict(log.partition.drain_in_flight())
    assert gone == {("r", name): None for name in "abc"}
    again = Partition.restore(0, log.partition.parts().items())
    assert again.in_flight == 1
    assert [key for key, attempt in again.drain_in_flight() if attempt] == [("other", "s0")]
    log.put(StepProgressed(run_id="r", step="a", epoch=1, progress=3))
    assert log.partition.waiting == 1
    assert_restores(log)


def test_a_partition_with_only_quarantined_runs_needs_no_ticks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log()
    log.start(chain(2))
    log.began("s0", reply_to="w")
    assert log.partition.needs_tick
    broken(monkeypatch, log)
    assert not log.partition.needs_tick
    out = log.put(RunCancelled(run_id="r", request_id="c"))
    assert answers(out) == [], "its worker has been told"
    assert view(log).state is RunState.CANCELLED
    assert log.partition.in_flight == 0
    assert not log.partition.needs_tick


def test_an_end_that_raises_is_tried_again_and_a_person_is_told_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log()
    log.start(chain(1), ttl_ms=20_000)
    log.began("s0", reply_to="w")
    broken(monkeypatch, log)
    asked = []
    with monkeypatch.context() as patch:
        patch.setattr("dalsegno.streams.core.units.end_run", raising)
        log.put(RunCancelled(run_id="r", request_id="c"))
        assert log.outcomes == [Outcome.DEAD_LETTERED]
        for _ in range(3):
            deadline = log.partition.next_log_deadline_ms
            assert deadline is not None, "P6: a deadline, whatever has raised"
            log.now_ms = deadline
            out = log.tick(1)
            asked += escalations(out)
            assert answers(out) == []
    assert [a.answer_by_ms - a.at_ms for a in asked] == [WAIT_MS] * 3
    assert all(a.escalation_id != b.escalation_id for a, b in pairwise(asked))
    assert log.partition.in_flight == 0
    assert_restores(log)
    log.now_ms = asked[-1].answer_by_ms
    log.tick(1)
    assert view(log).state is RunState.EXPIRED


def test_one_shot_ids_are_known_by_the_thousand_and_the_oldest_page_is_forgotten() -> None:
    log = Log()
    log.start(chain(1))
    for i in range(1_025):
        log.put(RiskFlagged(run_id="r", flag_id=f"{i}", flag="odd"))
    assert_restores(log)
    log.put(RiskFlagged(run_id="r", flag_id="1024", flag="odd"))
    assert log.outcomes == [Outcome.DUPLICATE]
    log.put(RiskFlagged(run_id="r", flag_id="32", flag="odd"))
    assert log.outcomes == [Outcome.DUPLICATE]
    log.put(RiskFlagged(run_id="r", flag_id="31", flag="odd"))
    assert log.outcomes == [Outcome.APPLIED]


def test_what_raises_for_a_run_that_has_ended_costs_only_its_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log()
    log.start(chain(1))
    log.began("s0")
    log.done("s0")
    before = view(log)
    intended = EffectIntended(run_id="r", step="s0", epoch=1, effect="pay", occurrence=0, key="k")
    with monkeypatch.context() as patch:
        patch.setattr("dalsegno.streams.core.stubs.words", raising)
        out = log.put(intended)
    (letter,) = dead_letters(out)
    assert letter.letter.reason == "apply_raised"
    assert len(out) == 1, "what the unit had put out before is taken back"
    assert view(log) == before
    log.start(chain(1), "neighbour")
    assert view(log, "neighbour").state is RunState.RUNNING
    assert_restores(log)


def test_early_events_that_nobody_can_read_any_more_do_not_stop_the_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log()
    log.put(RiskFlagged(run_id="r", flag_id="1", flag="odd"))
    log.start(chain(1), "neighbour")
    log.now_ms += Policy().early_wait_ms + 1
    monkeypatch.setattr("dalsegno.streams.core.stubs._decode", raising)
    letters = dead_letters(log.tick())
    assert [each.letter.kind for each in letters] == ["RiskFlagged"]
    assert (letters[0].letter.reason, log.partition.waiting) == ("early", 0)
