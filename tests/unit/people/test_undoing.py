"""Decisions that take a run back, and decisions about what could not be taken back."""

from __future__ import annotations

import msgspec
from tests.unit.core.log import (
    Log,
    assert_restores,
    escalations,
    handoffs,
    plan_of,
    row,
    step,
    transitions,
    view,
)
from tests.unit.people.asking import asked, decide, failed

from dalsegno.schemas.events import EffectIntended
from dalsegno.schemas.outputs import Escalation, RunState, StepState
from dalsegno.schemas.package import EffectFate, Silence
from dalsegno.schemas.plan import OnFailure, Risk, StepRole
from dalsegno.streams.core.effects import effect_key, recovery_key

PLAN = plan_of(
    step("reserve", compensate="release"),
    step("pay", needs=("reserve",), compensate="refund"),
    step("ship", needs=("pay",)),
    step("release", role=StepRole.COMPENSATION),
    step("refund", role=StepRole.COMPENSATION),
)


def failed_shipping(**fields: object) -> tuple[Log, Escalation]:
    log = Log()
    log.start(msgspec.structs.replace(PLAN, **fields))
    for name in ("reserve", "pay"):
        log.began(name)
        log.done(name, ops=[])
    log.began("ship")
    return log, asked(failed(log, "ship"))


def test_compensation_says_what_it_undoes_and_undoes_it_in_reverse_order() -> None:
    log, package = failed_shipping()
    option = next(o for o in package.options if o.decision == "compensate")
    assert (option.why_not, option.undoes) == ("", ("pay", "reserve"))
    out = decide(log, package, "compensate", reason="the customer gave up")
    assert view(log).state is RunState.COMPENSATING
    assert [h.step for h in handoffs(out)] == ["refund"]
    assert transitions(out)[0].reason == "compensate: the customer gave up"
    assert_restores(log)
    log.began("refund")
    assert [h.step for h in handoffs(log.done("refund", ops=[]))] == ["release"]
    log.began("release")
    log.done("release", ops=[])
    assert view(log).state is RunState.COMPENSATED


def test_a_decision_on_another_step_of_a_run_that_turned_round_is_too_late() -> None:
    plan = plan_of(
        step("a", compensate="undo a"), step("b"), step("c"),
        step("undo a", role=StepRole.COMPENSATION),
    )  # fmt: skip
    log = Log()
    log.start(plan)
    for name in "abc":
        log.began(name)
    log.done("a", ops=[])
    first = asked(failed(log, "b"))
    second = asked(failed(log, "c"))
    decide(log, first, "compensate")
    assert [t.reason for t in transitions(decide(log, second, "retry"))] == ["not_open"]
    assert_restores(log)


def refund_failed() -> tuple[Log, Escalation]:
    log, package = failed_shipping()
    decide(log, package, "compensate")
    log.began("refund")
    return log, asked(failed(log, "refund"))


def test_a_failed_compensation_can_be_tried_again() -> None:
    log, package = refund_failed()
    options = {o.decision.value: o.why_not for o in package.options}
    assert options["compensate"] == "the run is being taken back already"
    out = decide(log, package, "retry")
    assert [(h.step, h.epoch) for h in handoffs(out)] == [("refund", 2)]


def test_what_was_taken_back_by_hand_lets_the_rest_go_on() -> None:
    log, package = refund_failed()
    out = decide(log, package, "skip", reason="paid back at the counter")
    assert row(log, "pay").state is StepState.COMPENSATED
    assert [h.step for h in handoffs(out)] == ["release"]
    assert_restores(log)
    log.began("release")
    log.done("release", ops=[])
    assert view(log).state is RunState.COMPENSATED


def test_a_run_that_is_not_wholly_taken_back_never_counts_as_compensated() -> None:
    """R070: a failed compensation was still reported as compensated."""
    log, package = refund_failed()
    decide(log, package, "cancel")
    assert (view(log).state, view(log).kind) == (RunState.FAILED, "ended")


def test_a_rejection_takes_back_where_the_plan_says_so() -> None:
    plan = plan_of(
        step("reserve", compensate="release"),
        step("pay", needs=("reserve",), risk=Risk.MONEY, risk_reason="gone is gone"),
        step("release", role=StepRole.COMPENSATION),
        on_failure=OnFailure.COMPENSATE,
    )
    log = Log()
    log.start(plan)
    log.began("reserve")
    package = asked(log.done("reserve", ops=[]))
    assert package.silence is Silence.COMPENSATES
    out = decide(log, package, "reject")
    assert view(log).state is RunState.COMPENSATING
    assert [h.step for h in handoffs(out)] == ["release"]


def test_silence_takes_back_where_the_plan_says_so() -> None:
    plan = plan_of(
        step("reserve", compensate="release"),
        step("pay", needs=("reserve",), risk=Risk.MONEY, risk_reason="gone is gone"),
        step("release", role=StepRole.COMPENSATION),
        on_failure=OnFailure.COMPENSATE,
    )
    log = Log()
    log.start(plan, ttl_ms=10**9)
    log.began("reserve")
    package = asked(log.done("reserve", ops=[]))
    log.now_ms = package.answer_by_ms
    assert [h.step for h in handoffs(log.tick(1))] == ["release"]
    assert view(log).state is RunState.COMPENSATING


def test_undone_effects_are_shown_as_undone() -> None:
    log, package = failed_shipping()
    decide(log, package, "compensate")
    log.began("refund")
    log.done("refund", ops=[])
    key = effect_key(recovery_key("r", "reserve"), "hold", 0)
    # A late intent of an attempt that is long over enters the journal.
    log.put(
        EffectIntended(run_id="r", step="reserve", epoch=1, effect="hold", occurrence=0, key=key)
    )
    log.began("release")
    again = asked(failed(log, "release"))
    assert {e.fate for e in again.effect_lines} == {EffectFate.UNKNOWN}
    assert escalations(decide(log, again, "skip")) == []
    assert view(log).state is RunState.COMPENSATED
