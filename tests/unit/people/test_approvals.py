"""Risky steps run only under an approval of this plan, this step and these values (P7)."""

from __future__ import annotations

import msgspec
from tests.unit.core.log import (
    Log,
    assert_restores,
    escalations,
    handoffs,
    pack,
    plan_of,
    row,
    step,
    transitions,
    view,
)
from tests.unit.people.asking import asked, decide, failed

from dalsegno.schemas.events import FailureType, InformationSupplied, PlanExtended
from dalsegno.schemas.outputs import Escalation, Outcome, RunState, StepState
from dalsegno.schemas.plan import Risk

PAY = plan_of(
    step("quote", writes=("price",)),
    step(
        "pay", needs=("quote",), reads=("price",), writes=("receipt",), risk=Risk.MONEY,
        risk_reason="money leaves the account and does not come back",
    ),
)  # fmt: skip


def awaiting() -> tuple[Log, Escalation]:
    log = Log()
    log.start(PAY)
    log.began("quote")
    return log, asked(log.done("quote", ops=[["set", ["price"], 12]]))


def test_a_risky_step_waits_and_runs_under_its_approval() -> None:
    log, package = awaiting()
    assert row(log, "pay").state is StepState.AWAITING_APPROVAL
    assert view(log).waiting_for == "person"
    assert (package.asked, package.reason) == ("approval", "risk:money")
    assert package.question == "May step pay run with these values? Its risk: money."
    assert [(line.field, line.value) for line in package.fields] == [("price", "12")]
    assert "does not come back" in package.message
    assert_restores(log)
    (handoff,) = handoffs(decide(log, package, "approve"))
    assert msgspec.msgpack.decode(handoff.inputs) == {"price": 12}
    assert_restores(log)


def test_an_approval_holds_for_further_attempts_of_the_same_step() -> None:
    log, package = awaiting()
    decide(log, package, "approve")
    log.began("pay")
    failed(log, "pay", kind=FailureType.TRANSIENT)
    out: list = []  # type: ignore[type-arg]
    while not handoffs(out):
        out = log.tick(1)
        assert not escalations(out)
    assert handoffs(out)[0].epoch == 2


def test_values_that_move_before_the_answer_are_asked_about_again_at_once() -> None:
    log, package = awaiting()
    ops = pack([["set", ["price"], 900]])
    again = asked(
        log.put(InformationSupplied(run_id="r", information_id="i", ops=ops, origin="bank"))
    )
    assert [(line.value, line.moved) for line in again.fields] == [("900", True)]
    decide(log, package, "approve")
    assert log.outcomes == [Outcome.REFUSED], "made on the old price"
    assert_restores(log)
    assert msgspec.msgpack.decode(handoffs(decide(log, again, "approve"))[0].inputs) == {
        "price": 900
    }


def test_an_approval_is_void_when_values_move_between_it_and_the_dispatch() -> None:
    """R083: an old approval was carried over although parameters or plan had changed."""
    log, package = awaiting()
    decide(log, package, "approve")
    log.began("pay")
    ops = pack([["set", ["price"], 900]])
    log.put(InformationSupplied(run_id="r", information_id="i", ops=ops, origin="bank"))
    failed(log, "pay", kind=FailureType.TRANSIENT)
    out: list = []  # type: ignore[type-arg]
    while not escalations(out):
        out = log.tick(1)
        assert not handoffs(out), "P7"
    again = asked(out)
    assert "since it was approved" in again.message
    assert [e.decision for e in again.earlier] == ["approve"]
    assert_restores(log)


def test_a_plan_that_grows_voids_the_approval() -> None:
    log, package = awaiting()
    out = log.put(PlanExtended(run_id="r", extension_id="e", steps=(step("more"),)))
    again = asked(out)
    assert again.plan_digest != package.plan_digest
    decide(log, package, "approve")
    assert log.outcomes == [Outcome.REFUSED]
    assert [h.step for h in handoffs(decide(log, again, "approve"))] == ["pay"]


def test_a_rejected_step_does_not_run_and_the_run_ends() -> None:
    log, package = awaiting()
    out = decide(log, package, "reject", reason="too dear")
    assert handoffs(out) == []
    assert view(log).state is RunState.FAILED
    assert transitions(out)[0].reason == "reject: too dear"


def test_who_edits_has_not_approved() -> None:
    log, package = awaiting()
    out = decide(log, package, "edit", [["set", ["price"], 10]])
    assert handoffs(out) == []
    again = asked(out)
    assert [(line.value, line.source, line.moved) for line in again.fields] == [("10", "ana", True)]
    assert handoffs(decide(log, again, "approve"))


def test_silence_ends_the_run_as_stated() -> None:
    log, package = awaiting()
    assert package.silence_text.startswith("The run ends as failed")
    log.now_ms = package.answer_by_ms
    assert handoffs(log.tick(1)) == []
    assert (view(log).state, view(log).reason) == (RunState.FAILED, "nobody_answered")


def test_what_is_missing_is_asked_before_the_approval_is() -> None:
    log = Log()
    plan = plan_of(step("pay", reads=("price",), risk=Risk.MONEY, risk_reason="gone is gone"))
    log.start(plan)
    package = asked(log.outputs)
    assert package.asked == "information"
    package = asked(decide(log, package, "supply", [["set", ["price"], 3]]))
    assert package.asked == "approval"
    assert handoffs(decide(log, package, "approve"))


def test_a_run_that_waits_at_a_gate_is_live() -> None:
    """R169: waiting was counted as finished, and a second run was started."""
    log, _ = awaiting()
    log.start(PAY)
    assert log.outcomes == [Outcome.DUPLICATE]
    assert log.partition.open_runs == 1
