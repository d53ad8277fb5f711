"""Decisions: the first on its package, made on what it showed, possible, and on record."""

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
from tests.unit.people.asking import asked, decide, decision, failed

from dalsegno.schemas.events import (
    EffectIntended,
    FailureType,
    InformationSupplied,
    PlanExtended,
    RiskFlagged,
    RunCancelled,
)
from dalsegno.schemas.outputs import AnswerType, Escalation, Outcome, RunState, StepState
from dalsegno.schemas.plan import RetryPolicy, UnknownPolicy
from dalsegno.streams.core.effects import effect_key, recovery_key
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.runstate import Run


def stuck(plan: object = None, **fields: object) -> tuple[Log, Escalation]:
    """A run whose first step has failed for good."""
    log = Log()
    log.start(plan or chain(2), **fields)  # type: ignore[arg-type]
    log.began("s0")
    return log, asked(failed(log, "s0"))


def refusal(log: Log, out: list) -> str:  # type: ignore[type-arg]
    assert log.outcomes == [Outcome.REFUSED]
    (transition,) = transitions(out)
    assert transition.cause == "DecisionMade"
    return transition.reason


def test_a_retry_gives_the_step_out_with_budgets_as_new_and_is_on_record() -> None:
    log, package = stuck()
    out = decide(log, package, "retry", reason="the bank said so")
    (handoff,) = handoffs(out)
    assert (handoff.step, handoff.epoch, handoff.retries) == ("s0", 2, 0)
    (transition,) = transitions(out)
    assert (transition.actor, transition.reason) == ("ana", "retry: the bank said so")
    assert (transition.cause, transition.step) == ("DecisionMade", "s0")
    assert_restores(log)
    log.began("s0", epoch=2)
    log.done("s0", epoch=2)
    log.began("s1")
    log.done("s1")
    assert view(log).state is RunState.SUCCEEDED


def test_the_first_decision_stands_and_later_ones_hear_it() -> None:
    """R118: the same question could be answered again with another value."""
    log, package = stuck()
    decide(log, package, "retry")
    before = view(log)
    for kind, by in (("cancel", "ben"), ("retry", "ana")):
        out = decide(log, package, kind, decision_id=f"second {kind}", decided_by=by)
        assert refusal(log, out) == "already_decided"
        assert "retry by ana" in transitions(out)[0].detail
        assert transitions(out)[0].actor == by
        assert view(log) == before
    assert_restores(log)


def test_a_repeat_of_a_decision_is_a_duplicate() -> None:
    log, package = stuck()
    decide(log, package, "retry")
    assert transitions(decide(log, package, "retry")) == []
    assert log.outcomes == [Outcome.DUPLICATE]


def test_after_the_end_the_first_decision_is_still_heard() -> None:
    log, package = stuck()
    decide(log, package, "cancel")
    assert view(log).state is RunState.CANCELLED
    out = decide(log, package, "retry", decision_id="late")
    assert refusal(log, out) == "already_decided"
    again = Partition.restore(0, log.partition.parts().items())
    assert again.parts() == log.partition.parts()


def test_a_late_decision_is_recorded_as_late_and_nothing_runs() -> None:
    """R057: approved after the run had failed, the decision was attached to nothing."""
    log, package = stuck()
    log.now_ms = package.answer_by_ms
    log.tick(1)
    assert view(log).state is RunState.FAILED
    out = decide(log, package, "retry")
    assert refusal(log, out) == "run_ended"
    assert "nobody_answered" in transitions(out)[0].detail
    assert handoffs(out) == []


def test_a_delayed_answer_does_not_meet_the_next_question() -> None:
    """R041: a delayed answer for question n was applied to question n + 1."""
    log, first = stuck()
    decide(log, first, "retry")
    log.began("s0", epoch=2)
    second = asked(failed(log, "s0", epoch=2))
    out = decide(log, first, "cancel", decision_id="delayed")
    assert refusal(log, out) == "already_decided"
    forged = decision(first, "cancel", decision_id="x", escalation_id=second.escalation_id)
    assert refusal(log, log.put(forged)) == "other_package"
    assert row(log, "s0").state is StepState.ESCALATED


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"package_digest": b"0" * 32}, "other_package"),
        ({"package_digest": b""}, "other_package"),
        ({"escalation_id": "r#9"}, "not_open"),
        ({"escalation_id": "other#1"}, "not_open"),
        ({"escalation_id": "r#one"}, "not_open"),
        ({"escalation_id": "r#²"}, "not_open"),
        ({"step": "s1"}, "not_open"),
        ({"step": "nowhere"}, "not_open"),
        ({"expected_run_version": 99}, "version_conflict"),
        ({"decided_by": ""}, "no_decider"),
        ({"reason": " "}, "no_reason"),
        ({"ops": pack([["set", ["x"], 1]])}, "ops_not_taken"),
    ],
)
def test_what_does_not_fit_the_package_is_refused_and_changes_nothing(
    changed: dict[str, object], reason: str
) -> None:
    log, package = stuck()
    before = view(log)
    assert refusal(log, decide(log, package, "retry", **changed)) == reason
    assert view(log) == before
    assert_restores(log)


@pytest.mark.parametrize("kind", ["supply", "approve", "reject", "compensate"])
def test_what_the_package_did_not_offer_cannot_be_decided(kind: str) -> None:
    log, package = stuck()
    out = decide(log, package, kind)
    assert refusal(log, out) == "not_available"
    option = next(o for o in package.options if o.decision == kind)
    assert option.why_not in transitions(out)[0].detail


def test_what_has_moved_since_is_asked_again() -> None:
    plan = plan_of(step("s0", reads=("rate",)), step("s1", needs=("s0",)))
    log, package = stuck(plan, context={"rate": 1})
    ops = pack([["set", ["rate"], 2]])
    log.put(InformationSupplied(run_id="r", information_id="i", ops=ops, origin="bank"))
    out = decide(log, package, "retry")
    assert refusal(log, out) == "package_moved"
    again = asked(out)
    assert again.package_digest != package.package_digest
    run = log.partition._runs.get("r")
    assert isinstance(run, Run)
    assert run.seen is not None
    (kept,) = (said for name, said in run.seen.items() if "retry" in name)
    assert kept is not None, "its id is that of a refused decision, not of one that was taken"
    assert kept[0] == "package_moved"
    assert [line.moved for line in again.fields] == [True]
    assert refusal(log, decide(log, package, "retry", decision_id="old")) == "not_open"
    assert_restores(log)
    decide(log, again, "retry")
    assert row(log, "s0").state is StepState.DISPATCHED


def test_a_plan_that_grew_is_asked_about_again() -> None:
    log, package = stuck()
    log.put(PlanExtended(run_id="r", extension_id="e", steps=(step("more"),)))
    assert refusal(log, decide(log, package, "retry")) == "package_moved"


def test_supplied_fields_are_checked_and_the_step_goes_on() -> None:
    log = Log()
    log.start(plan_of(step("s0", reads=("who", "where"), writes=("f0",))))
    package = asked(log.outputs)
    assert refusal(log, decide(log, package, "supply", [["set", ["who"], "x"]])) == "still_missing"
    out = decide(log, package, "supply", [["set", ["else"], 1]], decision_id="b")
    assert refusal(log, out) == "bad_ops"
    both = [["set", ["who"], "x"], ["set", ["where"], "y"]]
    out = decide(log, package, "supply", both, decision_id="c")
    (handoff,) = handoffs(out)
    assert msgspec.msgpack.decode(handoff.inputs) == {"who": "x", "where": "y"}
    assert transitions(out)[0].diff
    assert_restores(log)


def test_only_fields_that_the_package_names_can_be_edited() -> None:
    plan = plan_of(step("s0", reads=("rate",)), step("s1", needs=("s0",)))
    log, package = stuck(plan, context={"rate": 1, "other": 1})
    out = decide(log, package, "edit", [["set", ["other"], 2]])
    assert refusal(log, out) == "bad_ops"
    assert transitions(out)[0].detail == "edit may change rate here, not other"
    out = decide(log, package, "edit", [["set", ["rate"], 2]], decision_id="b")
    assert msgspec.msgpack.decode(handoffs(out)[0].inputs) == {"rate": 2}


def test_a_skipped_step_lets_what_is_behind_it_go_on() -> None:
    plan = plan_of(step("s0", writes=("f0",)), step("s1", needs=("s0",), reads=("f0",)))
    log, package = stuck(plan)
    assert refusal(log, decide(log, package, "skip")) == "still_missing"
    out = decide(log, package, "skip", [["set", ["f0"], "by hand"]], decision_id="b")
    assert row(log, "s0").state is StepState.SKIPPED
    (handoff,) = handoffs(out)
    assert (handoff.step, msgspec.msgpack.decode(handoff.inputs)) == ("s1", {"f0": "by hand"})
    log.began("s1")
    log.done("s1", ops=[])
    assert view(log).state is RunState.SUCCEEDED


def test_the_last_step_may_be_skipped() -> None:
    log, package = stuck(chain(1))
    decide(log, package, "skip")
    assert view(log).state is RunState.SUCCEEDED


def test_a_cancel_ends_the_run_and_tells_its_workers() -> None:
    log = Log()
    log.start(plan_of(step("s0"), step("beside")))
    log.began("s0")
    log.began("beside", reply_to="w")
    package = asked(failed(log, "s0"))
    out = decide(log, package, "cancel")
    assert [a.answer for a in answers(out)] == [AnswerType.CANCELLED]
    assert view(log).state is RunState.CANCELLED


def test_an_effect_of_unknown_outcome_is_tried_again_only_by_a_persons_word() -> None:
    plan = plan_of(step("s0", unknown=UnknownPolicy.PERSON, retry=RetryPolicy(max_attempts=9)))
    log = Log()
    log.start(plan)
    log.began("s0")
    key = effect_key(recovery_key("r", "s0"), "pay", 0)
    intent = EffectIntended(run_id="r", step="s0", epoch=1, effect="pay", occurrence=0, key=key)
    log.put(intent)
    failed(log, "s0", kind=FailureType.TRANSIENT)
    out: list = []  # type: ignore[type-arg]
    while not escalations(out):
        out = log.tick(1)
    package = asked(out)
    assert package.reason == "unknown_effect"
    assert [h.epoch for h in handoffs(decide(log, package, "retry"))] == [2]
    log.began("s0", epoch=2)
    log.put(msgspec.structs.replace(intent, epoch=2))
    assert log.outcomes == [Outcome.APPLIED]
    assert_restores(log)


def test_an_unsafe_step_closes_the_gate_and_its_decision_opens_it() -> None:
    log = Log()
    log.start(
        plan_of(step("s0"), step("s1", needs=("s0",)), step("other"), step("o2", needs=("other",)))
    )
    log.began("s0")
    package = asked(failed(log, "s0", kind=FailureType.UNSAFE))
    log.began("other")
    assert handoffs(log.done("other", ops=[])) == []
    out = decide(log, package, "skip")
    assert {h.step for h in handoffs(out)} == {"s1", "o2"}


def test_a_flag_raised_while_an_unsafe_step_holds_the_gate_is_asked_about_after_it() -> None:
    log = Log()
    plan = plan_of(step("s0"), step("s1", needs=("s0",)))
    log.start(msgspec.structs.replace(plan, gates=("odd",)))
    log.began("s0")
    unsafe = asked(failed(log, "s0", kind=FailureType.UNSAFE))
    log.put(RiskFlagged(run_id="r", flag_id="f", flag="odd"))
    out = decide(log, unsafe, "skip")
    assert handoffs(out) == []
    assert view(log).gate == "flag:odd"
    assert [h.step for h in handoffs(decide(log, asked(out), "approve"))] == ["s1"]
    assert_restores(log)


def test_each_of_two_unsafe_steps_holds_the_gate_until_it_is_decided() -> None:
    log = Log()
    log.start(plan_of(step("s0"), step("other"), step("s1", needs=("s0",))))
    log.began("s0")
    log.began("other")
    first = asked(failed(log, "s0", kind=FailureType.UNSAFE))
    second = asked(failed(log, "other", kind=FailureType.UNSAFE))
    assert handoffs(decide(log, first, "skip")) == []
    assert view(log).gate == "unsafe:other"
    assert [h.step for h in handoffs(decide(log, second, "skip"))] == ["s1"]
    assert_restores(log)


def test_a_gate_opens_by_approval_and_a_rejection_fails_the_run() -> None:
    for kind, state in (("approve", RunState.RUNNING), ("reject", RunState.FAILED)):
        log = Log()
        log.start(msgspec.structs.replace(chain(2), gates=("odd",)))
        log.began("s0")
        package = asked(log.put(RiskFlagged(run_id="r", flag_id="f", flag="odd")))
        assert (package.asked, package.step) == ("approval", "")
        log.done("s0")
        out = decide(log, package, kind)
        assert view(log).state is state
        assert [h.step for h in handoffs(out)] == (["s1"] if kind == "approve" else [])
        assert_restores(log)


def test_reminders_double_end_and_the_answer_stays_due() -> None:
    """R073: a question that nobody answered was sent again on each tick, for ever."""
    hour = 3_600_000
    log, package = stuck(ttl_ms=100 * hour)
    reminders = []
    while view(log).kind == "run":
        deadline = log.partition.next_log_deadline_ms
        assert deadline is not None
        log.now_ms = deadline - 1_000
        for again in escalations(log.tick(1)):
            assert again.escalation_id == package.escalation_id
            assert again.package_digest == package.package_digest
            reminders.append((again.reminder, (log.now_ms - package.at_ms) // hour))
        if len(reminders) == 3:
            assert_restores(log)
    assert reminders == [(1, 1), (2, 3), (3, 7), (4, 15), (5, 31)]
    assert view(log).reason == "nobody_answered"
    assert log.now_ms == package.answer_by_ms


def test_a_decision_about_a_run_that_is_not_there_is_refused() -> None:
    log, package = stuck()
    for run_id in ("nobody", "gone"):
        log.put(RunCancelled(run_id="gone", request_id="x"))
        log.put(decision(package, "retry", run_id=run_id, decision_id=run_id))
        assert log.outcomes == [Outcome.REFUSED]


def test_a_step_that_ran_again_for_a_field_frees_nothing_twice_when_it_is_skipped() -> None:
    log = Log()
    log.start(
        plan_of(
            step("find", reads=("note",), may_write=("address",)),
            step("ship", needs=("find",)),
            step("pack"),
            step("mail", needs=("find", "pack")),
        ),
        context={"note": "x" * 2_000},
    )
    log.began("find")
    log.done("find", ops=[])
    log.began("ship")
    log.policy(supplier_reruns_max=3, dispatch_bytes_max=1_000)
    kind = FailureType.MISSING_INFO
    package = asked(failed(log, "ship", kind=kind, missing_fields=("address",)))
    assert (package.step, package.reason) == ("find", "handoff_too_large")
    assert handoffs(decide(log, package, "skip", [["set", ["address"], "Rue 1"]])) != []
    assert row(log, "mail").state is StepState.PENDING
    log.began("ship", 2)
    log.done("ship", 2, ops=[])
    log.began("pack")
    assert [h.step for h in handoffs(log.done("pack", ops=[]))] == ["mail"]
    log.began("mail")
    log.done("mail", ops=[])
    assert view(log).state is RunState.SUCCEEDED
