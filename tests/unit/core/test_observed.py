"""Steps that services run by themselves: whose attempt it is after one stopped, in what order."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.core.log import (
    Log,
    assert_restores,
    handoffs,
    pack,
    plan_of,
    row,
    step,
    view,
)

from dalsegno.schemas.control import StallSuspected, Verdict
from dalsegno.schemas.events import FailureType, InformationSupplied, StepFailed
from dalsegno.schemas.outputs import Outcome, RunState, StepState
from dalsegno.schemas.plan import RecoverPolicy


def failed(name: str, kind: FailureType, attempt: int = 1, **fields: object) -> StepFailed:
    event = StepFailed(run_id="r", step=name, epoch=0, attempt=attempt, failure_type=kind)
    return msgspec.structs.replace(event, **fields)


def asking(recover: RecoverPolicy = RecoverPolicy.NOTIFY) -> Log:
    log = Log()
    log.start(plan_of(step("s0", queue="", recover=recover)))
    log.began("s0", epoch=0, attempt=1)
    log.put(failed("s0", FailureType.MISSING_INFO, missing_fields=("f",)))
    assert row(log, "s0").state is StepState.MISSING_INFO
    return log


def inform(log: Log, number: str = "i") -> list[object]:
    ops = pack([["set", ["f"], 1]])
    return list(
        log.put(InformationSupplied(run_id="r", information_id=number, ops=ops, origin="test"))
    )


def test_a_service_tries_again_while_its_step_waits_for_information() -> None:
    log = asking()
    log.began("s0", epoch=0, attempt=2)
    assert log.outcomes == [Outcome.APPLIED]
    assert (row(log, "s0").state, row(log, "s0").missing) == (StepState.RUNNING, ())
    assert_restores(log)
    log.done("s0", epoch=0, ops=[], attempt=2)
    assert view(log).state is RunState.SUCCEEDED


def test_an_older_attempt_of_a_service_changes_nothing() -> None:
    log = Log()
    log.start(plan_of(step("s0", queue="", writes=("f0",))))
    log.began("s0", epoch=0, attempt=2)
    log.began("s0", epoch=0, attempt=1)
    assert log.outcomes == [Outcome.SUPERSEDED]
    log.put(failed("s0", FailureType.PERMANENT, 1))
    assert log.outcomes == [Outcome.SUPERSEDED]
    log.done("s0", epoch=0, attempt=1)
    assert log.outcomes == [Outcome.SUPERSEDED]
    assert row(log, "s0").state is StepState.RUNNING
    log.done("s0", epoch=0, attempt=2)
    assert view(log).state is RunState.SUCCEEDED


def test_a_service_may_ask_again() -> None:
    log = asking()
    log.put(failed("s0", FailureType.MISSING_INFO, 2, missing_fields=("g",)))
    assert log.outcomes == [Outcome.APPLIED]
    assert row(log, "s0").missing == ("g",)
    assert_restores(log)


@pytest.mark.parametrize("recover", [RecoverPolicy.NOTIFY, RecoverPolicy.PERSON])
def test_information_does_not_take_the_step_from_its_service(recover: RecoverPolicy) -> None:
    log = asking(recover)
    before = log.records[-1].event
    inform(log)
    assert handoffs(log.outputs) == []
    assert (row(log, "s0").state, row(log, "s0").epoch) == (StepState.READY, 0)
    assert_restores(log)
    log.put(before)  # type: ignore[arg-type]
    assert log.outcomes == [Outcome.DUPLICATE], "a delayed repeat does not ask anew"
    log.began("s0", epoch=0, attempt=2)
    log.done("s0", epoch=0, ops=[], attempt=2)
    assert log.outcomes == [Outcome.APPLIED]
    assert view(log).state is RunState.SUCCEEDED


def test_information_gives_the_step_out_where_the_plan_says_so() -> None:
    log = asking(RecoverPolicy.REDISPATCH)
    inform(log)
    assert [h.epoch for h in handoffs(log.outputs)] == [1]
    log.began("s0", epoch=0, attempt=2)
    assert log.outcomes == [Outcome.SUPERSEDED]


def early(**fields: object) -> Log:
    """b has been reported before a, which it needs, is done."""
    log = Log()
    again = RecoverPolicy.REDISPATCH
    b = step("b", queue="", needs=("a",), recover=again, timeout_ms=5_000, **fields)
    log.start(plan_of(step("a", queue=""), b))
    log.began("b", epoch=0, attempt=1)
    return log


def stays_back_until_its_needs_are_met(log: Log) -> None:
    log.tick(60)
    assert handoffs(log.outputs) == [], "a is still open"
    assert row(log, "b").state is StepState.PENDING
    assert_restores(log)
    log.began("a", epoch=0, attempt=1)
    out = log.done("a", epoch=0, ops=[], attempt=1)
    assert [(h.step, h.epoch) for h in handoffs(out)] == [("b", 1)]


def test_a_failure_ahead_of_its_needs_is_not_retried_before_them() -> None:
    log = early()
    log.put(failed("b", FailureType.TRANSIENT))
    stays_back_until_its_needs_are_met(log)


def test_a_timeout_ahead_of_its_needs_gives_nothing_out() -> None:
    stays_back_until_its_needs_are_met(early())


def test_a_verdict_ahead_of_its_needs_gives_nothing_out() -> None:
    log = early()
    log.put(
        StallSuspected(
            run_id="r", step="b", epoch=0, verdict=Verdict.SILENT,
            events_offset=log.partition.position, heartbeats_at_ms=log.now_ms,
        )
    )  # fmt: skip
    assert log.outcomes == [Outcome.APPLIED]
    stays_back_until_its_needs_are_met(log)


def test_information_ahead_of_its_needs_gives_nothing_out() -> None:
    log = early()
    log.put(failed("b", FailureType.MISSING_INFO, missing_fields=("f",)))
    inform(log)
    stays_back_until_its_needs_are_met(log)


def test_a_service_may_go_on_by_itself_while_its_step_stays_back() -> None:
    log = early()
    log.put(failed("b", FailureType.TRANSIENT))
    log.tick(60)
    log.began("b", epoch=0, attempt=2)
    log.done("b", epoch=0, ops=[], attempt=2)
    assert log.outcomes == [Outcome.APPLIED]
    assert row(log, "b").state is StepState.COMPLETED


def test_a_repeat_of_a_failure_that_was_not_retried_is_a_duplicate() -> None:
    log = Log()
    log.start(plan_of(step("s0", queue="", timeout_ms=5_000)))
    event = failed("s0", FailureType.TRANSIENT)
    log.put(event)
    log.tick(10)
    assert row(log, "s0").state is StepState.ESCALATED
    log.put(event)
    assert log.outcomes == [Outcome.DUPLICATE]
    log.began("s0", epoch=0, attempt=2)
    assert log.outcomes == [Outcome.APPLIED]
