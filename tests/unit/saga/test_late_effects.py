"""What comes late while a run is taken back: each rule of `taking_back`, and the end of it."""

from __future__ import annotations

from tests.unit.core.log import Log, assert_restores, escalations, plan_of, row, step, view
from tests.unit.saga.orders import (
    ONCE,
    confirm,
    did,
    failed,
    given,
    handoff_of,
    intend,
    order,
    take_back,
    undo,
)

from dalsegno.schemas.control import RecoveryFrozen, RecoveryReleased
from dalsegno.schemas.events import FailureType
from dalsegno.schemas.outputs import EffectStatus, Outcome, RunState, StepState
from dalsegno.schemas.plan import OnFailure


def paying_while_packing_fails(log: Log, *, intended: bool) -> list[str]:
    """`pay` runs, and may have begun to act, when the failure of `pack` turns the run round."""
    log.start(order())
    did(log, "reserve", "reservation")
    log.began("pay")
    if intended:
        intend(log, "pay")
    log.began("pack")
    return given(failed(log, "pack"))


def test_what_may_have_been_done_is_taken_back_before_what_it_needs() -> None:
    log = Log()
    assert paying_while_packing_fails(log, intended=True) == ["refund"]
    assert row(log, "pay").state is StepState.COMPENSATING
    assert given(take_back(log, "refund")) == ["release"]


def test_a_confirmation_ahead_of_the_handoff_is_in_the_handoff() -> None:
    log = Log()
    log.start(order())
    did(log, "reserve", "reservation")
    did(log, "pack")
    log.began("pay")
    intend(log, "pay")
    did_not_wait = failed(log, "pay")
    assert handoff_of(did_not_wait, "refund").undo[0].status is EffectStatus.UNKNOWN
    log.began("refund")
    confirm(log, "pay")
    assert log.outcomes == [Outcome.SUPERSEDED], "its attempt is over; its journal is not"
    assert given([]) == []


def test_what_is_confirmed_while_its_compensation_is_out_is_taken_back_with_all_that_is_known() -> (
    None
):
    log = Log()
    paying_while_packing_fails(log, intended=True)
    log.began("refund")
    confirm(log, "pay")
    out = log.done("refund", ops=[])
    again = handoff_of(out, "refund")
    assert (again.epoch, again.undo[0].status) == (2, EffectStatus.CONFIRMED)
    assert row(log, "pay").state is StepState.COMPENSATING
    assert given(out) == ["refund"], "what it needs goes on waiting"
    assert_restores(log)
    assert given(take_back(log, "refund", 2)) == ["release"]


def test_what_its_own_journal_says_is_taken_back_comes_along() -> None:
    log = Log()
    paying_while_packing_fails(log, intended=True)
    log.began("refund")
    intend(log, "refund", "undo:act")
    confirm(log, "refund", "undo:act")
    confirm(log, "pay")
    again = handoff_of(log.done("refund", ops=[]), "refund")
    assert [(e.effect, e.status) for e in again.effects] == [("undo:act", EffectStatus.CONFIRMED)]


def test_an_intent_of_an_attempt_that_lost_its_step_is_taken_back_too() -> None:
    log = Log()
    assert paying_while_packing_fails(log, intended=False) == ["release"]
    assert row(log, "pay").state is StepState.SKIPPED
    out = intend(log, "pay")
    assert log.outcomes == [Outcome.SUPERSEDED]
    assert given(out) == ["refund"]
    assert row(log, "pay").state is StepState.COMPENSATING
    assert view(log).state is RunState.COMPENSATING
    assert_restores(log)
    take_back(log, "release")
    assert view(log).state is RunState.COMPENSATING, "what came late is still out"
    take_back(log, "refund")
    assert view(log).state is RunState.COMPENSATED


def test_an_intent_after_the_compensation_of_its_step_opens_it_again() -> None:
    log = Log()
    paying_while_packing_fails(log, intended=True)
    assert given(take_back(log, "refund")) == ["release"]
    out = intend(log, "pay", "tip")
    again = handoff_of(out, "refund")
    assert (again.epoch, [e.effect for e in again.undo]) == (2, ["act", "tip"])
    assert row(log, "pay").state is StepState.COMPENSATING
    take_back(log, "release")
    take_back(log, "refund", 2)
    assert view(log).state is RunState.COMPENSATED


def test_a_late_intent_holds_back_what_has_not_begun() -> None:
    log = Log()
    log.start(
        plan_of(
            step("a", compensate="undo a", retry=ONCE),
            step("b", needs=("a",), compensate="undo b", retry=ONCE),
            step("c", needs=("b",), compensate="undo c", retry=ONCE),
            step("d", needs=("b",), retry=ONCE),
            undo("undo a"),
            undo("undo b"),
            undo("undo c"),
            on_failure=OnFailure.COMPENSATE,
        )
    )
    did(log, "a")
    did(log, "b")
    log.began("c")
    log.began("d")
    assert given(failed(log, "d")) == ["undo b"]
    assert given(intend(log, "c")) == ["undo c"]
    assert given(take_back(log, "undo b")) == [], "a waits for c, which came late"
    assert row(log, "b").state is StepState.COMPENSATED
    assert given(take_back(log, "undo c")) == ["undo a"]
    take_back(log, "undo a")
    assert view(log).state is RunState.COMPENSATED


def test_a_repeat_of_a_late_report_changes_nothing() -> None:
    log = Log()
    paying_while_packing_fails(log, intended=False)
    intend(log, "pay")
    confirm(log, "pay")
    before = log.partition.parts()
    assert given(intend(log, "pay")) == []
    assert given(confirm(log, "pay")) == []
    after = log.partition.parts()
    assert {k: v for k, v in before.items() if k[:1] in b"sj"} == {
        k: v for k, v in after.items() if k[:1] in b"sj"
    }


def test_an_intent_after_the_end_is_put_to_a_person() -> None:
    log = Log()
    paying_while_packing_fails(log, intended=False)
    take_back(log, "release")
    assert view(log).state is RunState.COMPENSATED
    out = intend(log, "pay")
    assert [e.reason for e in escalations(out)] == ["effect_after_end"]


def test_reports_of_the_way_forward_are_superseded_on_the_way_back() -> None:
    log = Log()
    paying_while_packing_fails(log, intended=True)
    for report in (
        lambda: log.began("pay"),
        lambda: log.done("pay", ops=[]),
        lambda: failed(log, "pay"),
    ):
        report()
        assert log.outcomes == [Outcome.SUPERSEDED]
    log.done("reserve", ops=[["set", ["reservation"], "reserve"]])
    assert log.outcomes == [Outcome.DUPLICATE], "the repeat of what was applied"
    assert row(log, "reserve").state is StepState.COMPENSATING


def test_a_compensation_that_failed_waits_for_what_came_late_before_it_is_tried_again() -> None:
    log = Log()
    assert paying_while_packing_fails(log, intended=False) == ["release"]
    log.began("release")
    assert given(intend(log, "pay")) == ["refund"]
    failed(log, "release", FailureType.TRANSIENT)
    assert row(log, "release").state is StepState.BACKING_OFF
    assert given(log.tick(5)) == [], "pay needs what it gives back"
    assert row(log, "release").state is StepState.PENDING
    assert_restores(log)
    again = handoff_of(take_back(log, "refund"), "release")
    assert again.epoch == 2
    take_back(log, "release", 2)
    assert view(log).state is RunState.COMPENSATED


def test_one_that_fails_after_what_came_late_is_done_goes_on_as_usual() -> None:
    log = Log()
    paying_while_packing_fails(log, intended=False)
    log.began("release")
    intend(log, "pay")
    take_back(log, "refund")
    failed(log, "release", FailureType.TRANSIENT)
    assert given(log.tick(5)) == ["release"]


def test_a_compensation_that_a_freeze_held_waits_for_what_came_late() -> None:
    log = Log()
    log.start(
        plan_of(
            step("a", compensate="ua"),
            step("b", needs=("a",), compensate="ub"),
            step("c", needs=("b",), retry=ONCE),
            undo("ua"),
            undo("ub"),
            on_failure=OnFailure.COMPENSATE,
        )
    )
    did(log, "a")
    did(log, "b")
    log.began("c")
    assert given(failed(log, "c")) == ["ub"]
    log.put(RecoveryFrozen(partition=0, number=1, reason="x", source="s"))
    take_back(log, "ub")
    assert row(log, "ua").state is StepState.HELD
    intend(log, "b", "late")
    out = log.put(RecoveryReleased(partition=0, number=1)) + log.tick(2)
    assert given(out) == ["ub"]
    assert row(log, "ua").state is StepState.PENDING
    assert_restores(log)
    assert given(take_back(log, "ub", 2)) == ["ua"]
    take_back(log, "ua")
    assert view(log).state is RunState.COMPENSATED
