"""A quarantined run in a person's hands: a retry applies what waited, a cancel refuses it."""

from __future__ import annotations

import pytest
from tests.unit.core.log import (
    Log,
    assert_restores,
    chain,
    escalations,
    handoffs,
    plan_of,
    row,
    step,
    transitions,
    view,
)
from tests.unit.people.asking import asked, decide

from dalsegno.schemas.events import RiskFlagged
from dalsegno.schemas.outputs import Escalation, Outcome, RunState, StepState


def raising(*_: object, **__: object) -> None:
    raise ZeroDivisionError("ours")


def put_aside(monkeypatch: pytest.MonkeyPatch, log: Log) -> Escalation:
    with monkeypatch.context() as patch:
        patch.setattr("dalsegno.streams.core.lifecycle.raise_flags", raising)
        return asked(log.put(RiskFlagged(run_id="r", flag_id="f", flag="odd")))


def test_a_retry_applies_what_waited_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    log.start(chain(3))
    log.began("s0")
    package = put_aside(monkeypatch, log)
    log.done("s0")
    assert log.partition.waiting == 1
    out = decide(log, package, "retry")
    assert log.partition.waiting == 0
    assert row(log, "s0").state is StepState.COMPLETED
    assert [h.step for h in handoffs(out)] == ["s1"], "s0 was done: it does not run again"
    assert view(log).detail == ""
    assert_restores(log)


def test_attempts_that_were_told_to_stop_are_given_out_again_uncharged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log()
    log.start(plan_of(step("a"), step("b"), step("own", queue="")))
    log.began("a", reply_to="w")
    log.began("own", epoch=0, attempt=1)
    package = put_aside(monkeypatch, log)
    assert log.partition.in_flight == 0
    log.partition.drain_in_flight()
    decide(log, package, "retry")
    assert (row(log, "a").state, row(log, "a").infra_failures) == (StepState.BACKING_OFF, 0)
    assert row(log, "own").state is StepState.RUNNING, "nobody told the service to stop"
    assert log.partition.in_flight == 1
    followed = {key[1] for key, attempt in log.partition.drain_in_flight() if attempt is not None}
    assert followed == {"own"}
    assert_restores(log)
    out = log.tick(3)
    assert sorted((h.step, h.epoch) for h in handoffs(out)) == [("a", 2), ("b", 2)]


def test_a_cancel_refuses_what_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    log.start(chain(2))
    log.began("s0")
    package = put_aside(monkeypatch, log)
    log.done("s0")
    decide(log, package, "cancel")
    assert view(log).state is RunState.CANCELLED
    assert log.partition.waiting == 0
    assert log.partition.counts[Outcome.REFUSED] == 1


def test_what_raises_again_puts_the_run_aside_again_and_the_rest_waits_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log()
    log.start(chain(2))
    log.began("s0")
    package = put_aside(monkeypatch, log)
    log.put(RiskFlagged(run_id="r", flag_id="g", flag="odder"))
    log.done("s0")
    with monkeypatch.context() as patch:
        patch.setattr("dalsegno.streams.core.lifecycle.raise_flags", raising)
        out = decide(log, package, "retry")
    assert view(log).state is RunState.QUARANTINED
    assert log.partition.waiting == 1, "the completion still waits"
    again = asked(out)
    assert again.escalation_id != package.escalation_id
    assert_restores(log)
    decide(log, again, "retry", decision_id="again")
    assert row(log, "s0").state is StepState.COMPLETED
    assert log.partition.waiting == 0


def test_other_decisions_are_not_possible_and_a_second_one_hears_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log()
    log.start(chain(2))
    package = put_aside(monkeypatch, log)
    out = decide(log, package, "skip")
    assert [t.reason for t in transitions(out)] == ["not_available"]
    decide(log, package, "retry")
    out = decide(log, package, "cancel")
    assert [t.reason for t in transitions(out)] == ["already_decided"]
    assert escalations(out) == []
