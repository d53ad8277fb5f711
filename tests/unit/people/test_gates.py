"""Gates that an unsafe step closed: their deadline, and services that go on by themselves."""

from __future__ import annotations

from tests.unit.core.log import (
    Log,
    assert_restores,
    escalations,
    handoffs,
    pack,
    plan_of,
    row,
    step,
    view,
)
from tests.unit.people.asking import asked, decide, failed

from dalsegno.schemas.events import FailureType, InformationSupplied
from dalsegno.schemas.outputs import Escalation, Outcome, RunState, StepState

UNSAFE = FailureType.UNSAFE


def test_a_gate_waits_as_long_as_the_question_of_its_step_also_when_that_is_asked_again() -> None:
    log = Log()
    log.policy(reminder_first_ms=0, person_wait_ms=60_000)
    log.start(plan_of(step("a", reads=("x",)), step("b", needs=("a",))), context={"x": 1})
    log.began("a")
    first = asked(failed(log, "a", kind=UNSAFE))
    log.tick(40)
    ops = pack([["set", ["x"], 2]])
    log.put(InformationSupplied(run_id="r", information_id="i", ops=ops, origin="o"))
    again = asked(decide(log, first, "retry"))
    log.tick(40)
    assert view(log).state is RunState.WAITING, "the first answer's time is over, the second's not"
    assert_restores(log)
    assert [h.step for h in handoffs(decide(log, again, "retry", decision_id="2"))] == ["a"]
    assert view(log).gate == ""


def test_silence_on_the_question_that_was_asked_again_still_ends_the_run() -> None:
    log = Log()
    log.policy(reminder_first_ms=0, person_wait_ms=60_000)
    log.start(plan_of(step("a", reads=("x",))), context={"x": 1})
    log.began("a")
    first = asked(failed(log, "a", kind=UNSAFE))
    log.tick(40)
    ops = pack([["set", ["x"], 2]])
    log.put(InformationSupplied(run_id="r", information_id="i", ops=ops, origin="o"))
    decide(log, first, "retry")
    log.tick(61)
    assert (view(log).state, view(log).reason) == (RunState.FAILED, "nobody_answered")


def gone_on() -> tuple[Log, Escalation]:
    """A service whose step was unsafe starts it again without asking."""
    log = Log()
    log.start(plan_of(step("a", queue=""), step("b", needs=("a",)), step("c", needs=("b",))))
    log.began("a", epoch=0, attempt=1)
    failed(log, "a", epoch=0, kind=UNSAFE, attempt=1)
    out = log.began("a", epoch=0, attempt=2)
    return log, asked(out)


def test_a_service_that_goes_on_by_itself_opens_no_gate_and_the_gate_is_asked_about() -> None:
    log, package = gone_on()
    assert (package.step, package.reason) == ("", "unsafe:a")
    assert package.message == "step a was unsafe and went on without a decision"
    assert escalations(log.done("a", epoch=0, attempt=2, ops=[])) == []
    assert row(log, "b").state is StepState.READY
    assert view(log).waiting_for == "person"
    assert_restores(log)
    out = decide(log, package, "approve")
    assert [h.step for h in handoffs(out)] == ["b"]


def test_a_gate_with_a_question_of_its_own_stays_shut_when_the_step_is_decided() -> None:
    log, gate = gone_on()
    again = asked(failed(log, "a", epoch=0, kind=UNSAFE, attempt=2))
    decide(log, again, "skip")
    assert log.outcomes == [Outcome.APPLIED]
    assert view(log).gate == "unsafe:a"
    assert row(log, "b").state is StepState.READY
    assert [h.step for h in handoffs(decide(log, gate, "approve"))] == ["b"]


def test_silence_on_such_a_gate_ends_the_run() -> None:
    log, package = gone_on()
    wait_s = (package.answer_by_ms - package.at_ms) // 1_000
    log.now_ms += wait_s * 1_000
    log.tick()
    assert (view(log).state, view(log).reason) == (RunState.FAILED, "nobody_answered")


def test_a_run_that_ends_with_such_a_step_asks_nothing() -> None:
    log = Log()
    log.start(plan_of(step("a", queue="")))
    log.began("a", epoch=0, attempt=1)
    failed(log, "a", epoch=0, kind=UNSAFE, attempt=1)
    out = log.done("a", epoch=0, attempt=2, ops=[])
    assert escalations(out) == []
    assert view(log).state is RunState.SUCCEEDED
