"""A run from its start to its end, and what its handoffs hold."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.core.log import (
    Log,
    answers,
    assert_restores,
    chain,
    escalations,
    handoffs,
    pack,
    plan_of,
    row,
    step,
    transitions,
    view,
)

from dalsegno.schemas.events import FailureType, InformationSupplied, StepFailed
from dalsegno.schemas.outputs import AnswerType, Outcome, RunState, StepState
from dalsegno.streams.core.effects import recovery_key

unpack = msgspec.msgpack.decode


def test_a_chain_runs_to_its_end_and_its_starter_hears_of_it() -> None:
    log = Log()
    out = log.start(chain(3), reply_to="me", context={"a": 1})
    assert [a.answer for a in answers(out)] == [AnswerType.ACCEPTED]
    for name in ("s0", "s1", "s2"):
        assert row(log, name).state is StepState.DISPATCHED
        log.began(name)
        assert_restores(log)
        out = log.done(name)
    (ended,) = answers(out)
    assert (ended.answer, ended.run_state) == (AnswerType.ENDED, RunState.SUCCEEDED)
    assert unpack(ended.context) == {"a": 1, "f0": "s0", "f1": "s1", "f2": "s2"}
    assert view(log).state is RunState.SUCCEEDED
    assert log.partition.open_runs == 0
    assert not log.partition.needs_tick
    assert_restores(log)


def test_a_join_runs_once_after_all_that_it_needs() -> None:
    log = Log()
    log.start(
        plan_of(
            step("a"), step("b", needs=("a",)), step("c", needs=("a",)), step("d", needs=("b", "c"))
        )
    )
    log.began("a")
    assert [h.step for h in handoffs(log.done("a", ops=[]))] == ["b", "c"]
    log.began("c")
    assert handoffs(log.done("c", ops=[])) == []
    log.began("b")
    assert [h.step for h in handoffs(log.done("b", ops=[]))] == ["d"]


def test_a_handoff_holds_what_the_step_reads_and_nothing_else() -> None:
    log = Log()
    plan = plan_of(
        step(
            "a", reads=("x", "y"), writes=("z",), goal="find z", timeout_ms=5_000, heartbeat_ms=500
        )
    )
    (handoff,) = handoffs(
        log.put(
            msgspec.structs.replace(_start(plan), context=pack({"y": 2, "x": 1, "other": 3})),
            headers=(("traceparent", b"00-abc-def-01"),),
        )
    )
    assert unpack(handoff.inputs) == {"x": 1, "y": 2}
    assert (handoff.step, handoff.epoch, handoff.goal, handoff.run_version) == ("a", 1, "find z", 1)
    assert handoff.recovery_key == recovery_key("r", "a")
    assert handoff.start_by_ms == log.now_ms + log.partition.policy.start_limit_ms
    assert handoff.writes == ("z",)
    assert log.outputs[0].action.trace == "00-abc-def-01"  # type: ignore[union-attr]


def _start(plan):  # type: ignore[no-untyped-def]
    from dalsegno.schemas.events import RunStarted

    return RunStarted(run_id="r", flow="f", flow_version=1, plan=plan, context=pack({}))


def test_a_missing_declared_read_goes_to_a_person_before_the_step_runs() -> None:
    log = Log()
    out = log.start(plan_of(step("a", reads=("x",))))
    assert handoffs(out) == []
    (asked,) = escalations(out)
    assert (asked.asked, asked.missing_fields, asked.step) == ("information", ("x",), "a")
    assert row(log, "a").state is StepState.MISSING_INFO
    assert (view(log).state, view(log).waiting_for) == (RunState.WAITING, "information")
    supplied = InformationSupplied(
        run_id="r", information_id="i1", ops=pack([["set", ["x"], 7]]), origin="desk", reply_to="me"
    )
    out = log.put(supplied)
    assert [unpack(h.inputs) for h in handoffs(out)] == [{"x": 7}]
    assert answers(out)[0].answer is AnswerType.ACCEPTED
    again = log.put(supplied)
    assert log.outcomes == [Outcome.DUPLICATE]
    assert answers(again) == answers(out), "a repeat that awaits an answer hears the same"
    assert transitions(again) == []


def test_a_step_that_does_not_write_what_it_declares_has_failed() -> None:
    log = Log()
    log.start(plan_of(step("a", writes=("x",))))
    log.began("a")
    out = log.done("a", ops=[], reply_to="w")
    assert log.outcomes == [Outcome.APPLIED]
    (asked,) = escalations(out)
    assert (asked.failure_type, asked.error_class) == ("invalid", "no_output")
    assert answers(out)[0].answer is AnswerType.REFUSED
    assert row(log, "a").state is StepState.ESCALATED
    assert unpack(view(log).context) == {}


@pytest.mark.parametrize(
    ("ops", "error_class"),
    [
        ([["set", ["other"], 1]], "write_refused"),
        ([["set", ["x"], 1], ["app", ["x"], [2]]], "bad_ops"),
        ("nonsense", "bad_ops"),
    ],
)
def test_operations_that_cannot_be_applied_leave_no_trace(ops: object, error_class: str) -> None:
    log = Log()
    log.start(plan_of(step("a", writes=("x",))))
    log.began("a")
    (asked,) = escalations(log.done("a", ops=ops))
    assert asked.error_class == error_class
    assert unpack(view(log).context) == {}
    assert_restores(log)


def test_compare_and_set_refuses_a_completion_made_on_other_facts() -> None:
    log = Log()
    log.start(plan_of(step("a", may_write=("x",)), step("b", may_write=("y",))))
    log.began("a")
    log.began("b")
    log.done("a", ops=[], expected_run_version=1)
    assert log.outcomes == [Outcome.APPLIED]
    out = log.done("b", ops=[], expected_run_version=1, reply_to="w")
    assert log.outcomes == [Outcome.REFUSED]
    assert answers(out)[0].reason == "version_conflict"
    log.done("b", ops=[], expected_run_version=2)
    assert view(log).state is RunState.SUCCEEDED


def test_secret_values_stay_out_of_transitions_answers_and_views() -> None:
    log = Log()
    plan = plan_of(step("a", writes=("pin",)), secrets=("pin",))
    log.start(plan, reply_to="me", context={"open": "x"})
    log.began("a")
    out = log.done("a", ops=[["set", ["pin"], "1234-secret"]])
    assert b"1234-secret" not in transitions(out)[-1].diff
    (ended,) = answers(out)
    assert unpack(ended.context) == {"open": "x"}
    assert b"1234-secret" not in view(log).context


def test_a_handoff_that_is_too_large_is_put_to_a_person_and_never_sent() -> None:
    log = Log()
    log.policy(dispatch_bytes_max=2_000)
    out = log.start(plan_of(step("a", reads=("x",))), context={"x": "y" * 3_000})
    assert handoffs(out) == []
    assert escalations(out)[0].reason == "handoff_too_large"


def test_a_run_is_no_wider_than_its_policy_allows() -> None:
    log = Log()
    log.policy(step_concurrency_max=2)
    out = log.start(plan_of(*(step(f"p{i}") for i in range(5))))
    assert [h.step for h in handoffs(out)] == ["p0", "p1"]
    log.began("p1")
    assert [h.step for h in handoffs(log.done("p1", ops=[]))] == ["p2"]
    log.began("p0")
    assert_restores(log)
    assert [h.step for h in handoffs(log.done("p0", ops=[]))] == ["p3"]


def test_a_reported_failure_shows_what_is_known_of_it() -> None:
    log = Log()
    log.start(plan_of(step("a", goal="decide")))
    log.began("a")
    out = log.put(
        StepFailed(
            run_id="r", step="a", epoch=1, failure_type=FailureType.PERMANENT, error_class="E",
            message="no such account", advice="close it",
        )
    )  # fmt: skip
    (asked,) = escalations(out)
    assert (asked.reason, asked.message, asked.advice) == (
        "permanent",
        "no such account",
        "close it",
    )
    assert (asked.goal, asked.attempts, asked.epoch) == ("decide", 1, 1)
    assert asked.answer_by_ms == log.now_ms + log.partition.policy.person_wait_ms
    assert (view(log).state, view(log).waiting_for) == (RunState.WAITING, "person")


def test_a_step_that_asked_for_information_waits_for_what_it_asked_for() -> None:
    log = Log()
    log.start(
        plan_of(
            step("a", may_write=("x",)),
            step("b", may_write=("y",)),
            step("c"),
        )
    )
    for name in ("a", "b", "c"):
        log.began(name)
    ask = StepFailed(
        run_id="r", step="c", epoch=1, failure_type=FailureType.MISSING_INFO, missing_fields=("y",)
    )
    assert escalations(log.put(ask)) == [], "b may still write it"
    assert handoffs(log.done("a", ops=[["set", ["x"], 1]])) == []
    assert row(log, "c").state is StepState.MISSING_INFO
    out = log.done("b", ops=[["set", ["y"], 1]])
    assert [(h.step, h.epoch) for h in handoffs(out)] == [("c", 2)]


def test_a_step_that_did_not_say_what_is_missing_waits_for_a_person_to_supply() -> None:
    log = Log()
    log.start(plan_of(step("a", may_write=("x",)), step("c")))
    log.began("a")
    log.began("c")
    log.put(StepFailed(run_id="r", step="c", epoch=1, failure_type=FailureType.MISSING_INFO))
    assert handoffs(log.done("a", ops=[["set", ["x"], 1]])) == []
    supplied = InformationSupplied(
        run_id="r", information_id="i", ops=pack([["set", ["z"], 1]]), origin="desk"
    )
    assert [h.step for h in handoffs(log.put(supplied))] == ["c"]


def test_a_view_says_what_attempts_are_watched_by_also_where_nothing_is_declared() -> None:
    """R121: nobody has to guess whether a step is watched."""
    log = Log()
    log.start(plan_of(step("a"), step("b", timeout_ms=5_000, heartbeat_ms=250)))
    assert [(s.timeout_ms, s.heartbeat_ms) for s in view(log).steps] == [
        (60_000, 1_000),
        (5_000, 250),
    ]
