"""Packages of runs that go back, and packages gone stale: what cannot be decided on them."""

from __future__ import annotations

import pytest
from tests.unit.core.log import (
    Log,
    assert_restores,
    escalations,
    handoffs,
    plan_of,
    row,
    step,
    view,
)
from tests.unit.people.asking import asked, decide, decision, failed
from tests.unit.saga.orders import ONCE, confirm, intend, take_back

from dalsegno.schemas.events import RiskFlagged
from dalsegno.schemas.outputs import Outcome, RunState, StepState
from dalsegno.schemas.plan import OnFailure, Risk, StepRole

UNDO = StepRole.COMPENSATION


def test_no_edit_gives_a_step_out_again_that_a_person_takes_back() -> None:
    log = Log()
    plan = plan_of(
        step("a", reads=("x",), compensate="ua"), step("b", needs=("a",)), step("ua", role=UNDO)
    )
    log.start(plan, context={"x": 1})
    log.began("a")
    intend(log, "a", undo="nosuch")
    confirm(log, "a")
    log.done("a", ops=[])
    log.began("b")
    decide(log, asked(failed(log, "b")), "compensate")
    package = asked(take_back(log, "ua"))
    assert (package.step, package.reason) == ("a", "no_way_back")
    assert handoffs(decide(log, package, "edit", [["set", ["x"], 2]])) == []
    assert log.outcomes == [Outcome.REFUSED]
    assert row(log, "a").state is StepState.ESCALATED
    decide(log, package, "skip")
    assert view(log).state is RunState.COMPENSATED


@pytest.mark.parametrize("kind", ["reject", "cancel", "approve"])
def test_a_gate_that_a_saga_opened_has_nothing_to_decide(kind: str) -> None:
    log = Log()
    plan = plan_of(
        step("a", compensate="ua"),
        step("b", needs=("a",)),
        step("ua", role=UNDO),
        on_failure=OnFailure.COMPENSATE,
        gates=("odd",),
    )
    log.start(plan)
    log.began("a")
    log.done("a", ops=[])
    log.began("b")
    package = asked(log.put(RiskFlagged(run_id="r", flag_id="f", flag="odd")))
    failed(log, "b")
    decide(log, package, kind)
    assert log.outcomes == [Outcome.REFUSED]
    assert view(log).state is RunState.COMPENSATING
    take_back(log, "ua")
    assert view(log).state is RunState.COMPENSATED


@pytest.mark.parametrize(
    "fields", [{"risk": Risk.MONEY, "risk_reason": "refund"}, {"reads": ("x",)}]
)
def test_a_person_can_take_back_what_a_waiting_compensation_would(
    fields: dict[str, object],
) -> None:
    log = Log()
    plan = plan_of(
        step("a", compensate="ua"), step("b", needs=("a",)), step("ua", role=UNDO, **fields)
    )
    log.start(plan)
    log.began("a")
    log.done("a", ops=[])
    log.began("b")
    package = asked(decide(log, asked(failed(log, "b")), "compensate"))
    assert package.asked in {"approval", "information"}
    decide(log, package, "skip")
    assert log.outcomes == [Outcome.APPLIED]
    assert view(log).state is RunState.COMPENSATED
    assert_restores(log)


@pytest.mark.parametrize("risky", [False, True])
def test_nobody_answers_for_an_effect_that_the_package_did_not_show(risky: bool) -> None:
    log = Log()
    fields = {"risk": Risk.MONEY, "risk_reason": "refund"} if risky else {}
    plan = plan_of(
        step("a", compensate="ua"),
        step("b", needs=("a",)),
        step("ua", role=UNDO, retry=ONCE, **fields),
    )
    log.start(plan)
    log.began("a")
    intend(log, "a", "seen")
    confirm(log, "a", "seen")
    log.done("a", ops=[])
    log.began("b")
    out = decide(log, asked(failed(log, "b")), "compensate")
    if not risky:
        log.began("ua")
        out = failed(log, "ua")
    package = asked(out)
    intend(log, "a", "late")
    out = decide(log, package, "approve" if risky else "skip")
    assert log.outcomes == [Outcome.REFUSED]
    assert handoffs(out) == []
    again = asked(out)
    assert {line.effect for line in again.effect_lines} == {"seen", "late"}
    decide(log, again, "approve" if risky else "skip")
    assert log.outcomes == [Outcome.APPLIED]


def test_an_approval_of_a_refund_is_void_once_more_is_to_be_taken_back() -> None:
    log = Log()
    plan = plan_of(
        step("a", compensate="ua"),
        step("b", needs=("a",)),
        step("ua", role=UNDO, risk=Risk.MONEY, risk_reason="refund"),
    )
    log.start(plan)
    log.began("a")
    log.done("a", ops=[])
    log.began("b")
    package = asked(decide(log, asked(failed(log, "b")), "compensate"))
    assert [h.step for h in handoffs(decide(log, package, "approve"))] == ["ua"]
    log.began("ua")
    intend(log, "a", "late")
    failed(log, "ua", kind="transient")
    out = log.tick(60)
    assert handoffs(out) == []
    assert [each.asked for each in escalations(out)] == ["approval"]


def test_a_decision_counts_for_no_later_run_of_the_same_id() -> None:
    log = Log()
    log.policy(stub_keep_ms=1_000)
    plan = plan_of(step("a", risk=Risk.MONEY, risk_reason="transfer"))
    first = asked(log.start(plan))
    decide(log, first, "approve")
    log.began("a")
    log.done("a", ops=[])
    log.tick(3)
    second = asked(log.start(plan))
    assert second.escalation_id == first.escalation_id
    assert handoffs(log.put(decision(first, "approve"))) == []
    assert log.outcomes == [Outcome.REFUSED]
    assert handoffs(decide(log, second, "approve", decision_id="anew"))
