"""A run that cannot reach its goal takes back what it did: in order, once, with all it needs."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.core.log import (
    Log,
    answers,
    assert_restores,
    escalations,
    plan_of,
    row,
    step,
    transitions,
    view,
)
from tests.unit.saga.orders import (
    ONCE,
    acted,
    confirm,
    did,
    failed,
    given,
    handoff_of,
    intend,
    order,
    take_back,
    undo,
    until_paid,
)

from dalsegno.schemas.events import (
    FailureType,
    InformationSupplied,
    PlanExtended,
    RiskFlagged,
    RunCancelled,
    RunPaused,
    RunResumed,
)
from dalsegno.schemas.outputs import AnswerType, EffectStatus, Outcome, RunState, StepState
from dalsegno.schemas.plan import OnFailure, Risk
from dalsegno.streams.core.effects import effect_key, recovery_key


def test_what_was_done_is_taken_back_in_reverse_order_and_side_by_side() -> None:
    log = Log()
    until_paid(log)
    log.began("ship")
    out = failed(log, "ship")
    assert sorted(given(out)) == ["refund", "unpack"], "ship did nothing, notify never ran"
    assert view(log).state is RunState.COMPENSATING
    states = {each.step: each.state for each in view(log).steps}
    assert states["reserve"] is states["pay"] is states["pack"] is StepState.COMPENSATING
    assert states["ship"] is states["notify"] is StepState.SKIPPED
    assert states["recall"] is StepState.PENDING
    assert_restores(log)
    assert given(take_back(log, "refund")) == []
    assert row(log, "pay").state is StepState.COMPENSATED
    out = take_back(log, "unpack")
    assert given(out) == ["release"]
    out = take_back(log, "release")
    assert view(log).state is RunState.COMPENSATED
    assert view(log).reason == "permanent"
    assert transitions(out)[-1].run_state_after is RunState.COMPENSATED


def test_a_handoff_says_what_there_is_to_take_back() -> None:
    log = Log()
    log.start(order())
    did(log, "reserve", "reservation")
    acted(log, "pay", undo_input=b"\x0a")
    intend(log, "pay", "tip")
    log.began("pack")
    out = failed(log, "pay")
    handoff = handoff_of(out, "refund")
    assert (handoff.undoes, handoff.undoes_completed) == ("pay", False)
    key = effect_key(recovery_key("r", "pay"), "act", 0)
    said = [(e.effect, e.key, e.status, e.undo_input) for e in handoff.undo]
    assert said[0] == ("act", key, EffectStatus.CONFIRMED, b"\x0a")
    assert said[1][::2] == ("tip", EffectStatus.UNKNOWN)
    assert msgspec.msgpack.decode(handoff.undo[0].result) == {"done": "pay"}
    assert handoff.wrote == b"", "what failed has left no trace in the context"
    assert handoff.effects == ()
    release = handoff_of(take_back(log, "refund"), "release")
    assert (release.undoes, release.undoes_completed) == ("reserve", True)
    assert msgspec.msgpack.decode(release.wrote) == {"reservation": "reserve"}


def test_attempts_that_run_are_told_to_stop_and_change_nothing_any_more() -> None:
    log = Log()
    log.start(order())
    did(log, "reserve", "reservation")
    log.began("pay", reply_to="worker")
    log.began("pack")
    out = failed(log, "pack")
    told = [a for a in answers(out) if a.reply_to == "worker"]
    assert [(a.answer, a.step, a.reason) for a in told] == [
        (AnswerType.CANCELLED, "pay", "compensating")
    ]
    assert given(out) == ["release"], "pay has done nothing yet"
    log.done("pay", ops=[["set", ["payment"], 1]])
    assert log.outcomes == [Outcome.SUPERSEDED]
    assert view(log).state is RunState.COMPENSATING


def test_with_nothing_to_take_back_the_run_is_compensated_at_once() -> None:
    log = Log()
    log.start(order())
    log.began("reserve")
    out = failed(log, "reserve")
    assert given(out) == []
    assert view(log).state is RunState.COMPENSATED
    assert escalations(out) == []


def test_forward_recovery_comes_first() -> None:
    log = Log()
    log.start(
        plan_of(
            step("a", compensate="undo a"),
            step("b", needs=("a",)),
            undo("undo a"),
            on_failure=OnFailure.COMPENSATE,
        )
    )
    did(log, "a")
    log.began("b")
    failed(log, "b", FailureType.TRANSIENT)
    assert view(log).state is RunState.WAITING
    assert row(log, "b").state is StepState.BACKING_OFF


@pytest.mark.parametrize(
    "kind", [FailureType.TRANSIENT, FailureType.DEPENDENCY, FailureType.INVALID]
)
def test_a_failure_for_good_of_any_type_turns_the_run_round(kind: FailureType) -> None:
    log = Log()
    until_paid(log)
    log.began("ship")
    assert given(failed(log, "ship", kind)) == ["refund", "unpack"]


def test_an_unsafe_step_goes_to_a_person_not_back() -> None:
    log = Log()
    until_paid(log)
    log.began("ship")
    out = failed(log, "ship", FailureType.UNSAFE)
    assert given(out) == []
    assert escalations(out)[0].step == "ship"
    assert view(log).state is RunState.WAITING


def test_a_plan_that_does_not_say_so_goes_to_a_person() -> None:
    log = Log()
    until_paid(log, on_failure=OnFailure.PERSON)
    log.began("ship")
    out = failed(log, "ship")
    assert given(out) == []
    assert row(log, "ship").state is StepState.ESCALATED


def test_a_cancel_takes_back_what_was_done() -> None:
    log = Log()
    until_paid(log)
    out = log.put(RunCancelled(run_id="r", request_id="c", reply_to="me"))
    assert [a.answer for a in answers(out) if a.reply_to == "me"] == [AnswerType.ACCEPTED]
    assert given(out) == ["refund", "unpack"]
    log.put(RunCancelled(run_id="r", request_id="c2", reply_to="me"))
    assert log.outcomes == [Outcome.REFUSED], "it is on its way to its end"
    take_back(log, "refund")
    take_back(log, "unpack")
    take_back(log, "release")
    assert (view(log).state, view(log).reason) == (RunState.COMPENSATED, "cancelled")


def test_a_cancel_with_nothing_done_just_ends_the_run() -> None:
    log = Log()
    log.start(order())
    log.put(RunCancelled(run_id="r", request_id="c"))
    assert view(log).state is RunState.CANCELLED


def test_the_end_of_its_time_takes_a_run_back() -> None:
    log = Log()
    log.start(order(), ttl_ms=600_000)
    did(log, "reserve", "reservation")
    log.now_ms += 600_000
    out = log.tick()
    assert given(out) == ["release"]
    assert view(log).expires_ms == 0, "time alone does not end it any more"
    log.now_ms += 9_000_000
    handoff = next(h for _ in range(200) if "release" in given(h := log.tick()))
    take_back(log, "release", handoff_of(handoff, "release").epoch)
    assert (view(log).state, view(log).reason) == (RunState.COMPENSATED, "ttl_passed")


@pytest.mark.parametrize("done", ["completed", "confirmed", "intended", "out"])
def test_after_a_pivot_only_forward(done: str) -> None:
    log = Log()
    log.start(
        plan_of(
            step("a", compensate="undo a"),
            step("b", needs=("a",), pivot=True, retry=ONCE),
            step("c", needs=("a",), retry=ONCE),
            undo("undo a"),
            on_failure=OnFailure.COMPENSATE,
        )
    )
    did(log, "a")
    if done == "completed":
        did(log, "b")
    elif done != "out":
        log.began("b")
        intend(log, "b")
        if done == "confirmed":
            confirm(log, "b")
    log.began("c")
    out = failed(log, "c")
    assert given(out) == []
    assert escalations(out)[0].step == "c"
    log.put(RunCancelled(run_id="r", request_id="c"))
    assert view(log).state is RunState.CANCELLED


def test_a_compensation_is_tried_again_within_its_budgets_under_its_own_journal() -> None:
    log = Log()
    until_paid(log)
    log.began("ship")
    failed(log, "ship")
    log.began("refund")
    intend(log, "refund", "give back")
    confirm(log, "refund", "give back")
    failed(log, "refund", FailureType.TRANSIENT)
    assert row(log, "refund").state is StepState.BACKING_OFF
    assert view(log).state is RunState.COMPENSATING
    again = handoff_of(log.tick(2), "refund")
    assert again.epoch == 2
    assert [(e.effect, e.status) for e in again.effects] == [("give back", EffectStatus.CONFIRMED)]
    assert [e.effect for e in again.undo] == ["act"]


def test_a_compensation_that_fails_for_good_goes_to_a_person_with_the_exact_remainder() -> None:
    log = Log()
    until_paid(log)
    log.began("ship")
    failed(log, "ship")
    log.began("refund")
    out = failed(log, "refund")
    asked = escalations(out)[0]
    assert asked.step == "refund"
    assert "not undone, waits for a person: pay" in asked.message
    assert "not undone yet: reserve, pack" in asked.message
    assert row(log, "refund").state is StepState.ESCALATED
    assert view(log).state is RunState.COMPENSATING, "the other branch goes on"
    take_back(log, "unpack")
    assert (view(log).state, view(log).waiting_for) == (RunState.WAITING, "person")
    assert row(log, "release").state is StepState.PENDING, "what depends on it waits"
    assert_restores(log)
    log.now_ms = max(each.answer_by_ms for each in escalations(log.outputs))
    for _ in range(20):
        if view(log).kind == "ended":
            break
        log.now_ms += 90_000_000
        log.tick()
    assert (view(log).state, view(log).reason) == (RunState.FAILED, "compensation_failed")
    left = view(log).detail
    assert "undone: pack" in left
    assert "waits for a person: pay" in left
    assert "not undone yet: reserve" in left


def test_pausing_a_saga_holds_its_compensations_back() -> None:
    log = Log()
    log.start(order())
    did(log, "reserve", "reservation")
    log.put(RunPaused(run_id="r", request_id="p"))
    log.began("pay")
    log.began("pack")
    out = failed(log, "pack")
    assert (given(out), view(log).state) == ([], RunState.PAUSED)
    out = log.put(RunResumed(run_id="r", request_id="q"))
    assert (given(out), view(log).state) == (["release"], RunState.COMPENSATING)


def test_flags_and_facts_are_taken_and_extensions_are_not() -> None:
    log = Log()
    until_paid(log, gates=("fraud",))
    log.began("ship")
    failed(log, "ship")
    log.put(RiskFlagged(run_id="r", flag_id="f", flag="fraud"))
    assert log.outcomes == [Outcome.APPLIED]
    ops = msgspec.msgpack.encode([["set", ["note"], 1]])
    log.put(InformationSupplied(run_id="r", information_id="i", ops=ops, origin="me"))
    assert log.outcomes == [Outcome.APPLIED]
    log.put(PlanExtended(run_id="r", extension_id="e", steps=(step("more"),)))
    assert log.outcomes == [Outcome.REFUSED]
    take_back(log, "unpack")
    assert given(take_back(log, "refund")) == ["release"], "a gate does not stop what undoes"


def test_an_open_gate_is_closed_no_more_once_the_run_goes_back() -> None:
    log = Log()
    until_paid(log, gates=("fraud",))
    log.put(RiskFlagged(run_id="r", flag_id="f", flag="fraud"))
    log.began("ship")
    assert given(failed(log, "ship")) == ["refund", "unpack"]


def test_what_awaited_an_approval_or_an_answer_is_let_go() -> None:
    log = Log()
    log.start(
        plan_of(
            step("a", compensate="undo a"),
            step("b", needs=("a",), risk=Risk.MONEY, risk_reason="moves money"),
            step("c", needs=("a",), reads=("lacking",)),
            step("d", needs=("a",), retry=ONCE),
            undo("undo a"),
            on_failure=OnFailure.COMPENSATE,
        )
    )
    did(log, "a")
    assert row(log, "b").state is StepState.AWAITING_APPROVAL
    assert row(log, "c").state is StepState.MISSING_INFO
    log.began("d")
    assert given(failed(log, "d")) == ["undo a"]
    assert {row(log, name).state for name in "bcd"} == {StepState.SKIPPED}
    ops = msgspec.msgpack.encode([["set", ["lacking"], 1]])
    assert (
        given(log.put(InformationSupplied(run_id="r", information_id="i", ops=ops, origin="me")))
        == []
    )
    assert_restores(log)
    take_back(log, "undo a")
    assert view(log).state is RunState.COMPENSATED
