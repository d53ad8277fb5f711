"""Missing facts: the step that supplies them, the policy's queue, a person; and on it goes."""

from __future__ import annotations

import pytest
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
from tests.unit.core.point_log import PointLog
from tests.unit.recovery.test_freezing import QUICK

from dalsegno.schemas.events import FailureType, InformationSupplied, StepFailed, StepReleased
from dalsegno.schemas.outputs import Outcome, RunState, StepState
from dalsegno.schemas.plan import StepPlan


def asks(log: Log, name: str, *fields: str, epoch: int = 1) -> None:
    log.put(
        StepFailed(
            run_id="r",
            step=name,
            epoch=epoch,
            failure_type=FailureType.MISSING_INFO,
            missing_fields=fields,
        )
    )


def asked(log: Log, supplier: StepPlan, *more: StepPlan) -> Log:
    """`find` has completed without the address; `ship` misses it."""
    if not log.records:
        log.policy(supplier_reruns_max=3)
    log.start(plan_of(supplier, step("ship", needs=(supplier.name,), retry=QUICK), *more))
    log.began(supplier.name)
    log.done(supplier.name, ops=[])
    log.began("ship")
    asks(log, "ship", "address")
    return log


FIND = step("find", may_write=("address",), retry=QUICK, goal="Find the customer.")


def test_a_completed_step_that_may_write_the_field_is_run_again_for_it() -> None:
    log = asked(Log(), FIND)
    (again,) = (h for h in handoffs(log.outputs) if h.step == "find" and h.epoch == 2)
    assert again.goal == "Find the customer.\nSupply address: step ship needs it."
    assert escalations(log.outputs) == []
    assert row(log, "ship").state is StepState.MISSING_INFO
    assert_restores(log)
    log.began("find", epoch=2)
    out = log.done("find", epoch=2, ops=[["set", ["address"], "Rue 1"]])
    assert [(h.step, h.epoch) for h in handoffs(out)] == [("ship", 2)]
    log.began("ship", epoch=2)
    log.done("ship", epoch=2, ops=[])
    found = view(log)
    assert found.state is RunState.SUCCEEDED
    assert found.steps == ()


def test_steps_behind_the_supplier_do_not_go_twice() -> None:
    log = asked(Log(), FIND, step("pack", needs=("find",)), step("mail", needs=("ship", "pack")))
    log.began("find", epoch=2)
    log.done("find", epoch=2, ops=[["set", ["address"], "Rue 1"]])
    assert len([h for h in handoffs(log.outputs) if h.step == "pack"]) == 1
    assert row(log, "mail").state is StepState.PENDING


def test_a_supplier_that_has_not_got_it_leads_to_a_person_and_stays_completed() -> None:
    for fails in (False, True):
        log = asked(Log(), FIND)
        log.began("find", epoch=2)
        if fails:
            kind = FailureType.TRANSIENT
            log.put(StepFailed(run_id="r", step="find", epoch=2, failure_type=kind))
        else:
            log.done("find", epoch=2, ops=[])
        assert row(log, "find").state is StepState.COMPLETED
        (question,) = escalations(log.outputs)
        assert (question.asked, question.missing_fields) == ("information", ("address",))
        assert len([h for h in handoffs(log.outputs) if h.step == "find"]) == 2
        assert view(log).waiting_for == "information"


def test_what_acts_on_the_outside_is_not_done_again_for_a_fact() -> None:
    for supplier in (
        step("find", may_write=("address",), compensate="unfind"),
        step("find", may_write=("address",), queue=""),
    ):
        log = Log()
        log.policy(supplier_reruns_max=3)
        more = [step("unfind", role="compensation")] if supplier.compensate else []
        log.start(plan_of(supplier, step("ship", needs=("find",)), *more))
        epoch = 1 if supplier.queue else 0
        log.began("find", epoch=epoch, attempt=0 if epoch else 1)
        log.done("find", epoch=epoch, ops=[], attempt=0 if epoch else 1)
        log.began("ship")
        asks(log, "ship", "address")
        assert len(escalations(log.outputs)) == 1


@pytest.mark.parametrize("way", ["held", "given back"])
def test_a_rerun_that_is_held_or_given_back_frees_nothing_twice(way: str) -> None:
    log = PointLog()
    log.policy(supplier_reruns_max=3)
    if way == "held":
        log.start(
            plan_of(
                step("find", may_write=("address",), depends_on=("pay",)),
                step("ship", needs=("find",), retry=QUICK),
            )
        )
        log.began("find")
        log.done("find", ops=[])
        log.began("ship")
        log.state()
        asks(log, "ship", "address")
        assert row(log, "find").state is StepState.HELD
        [again] = log.grant(1)
    else:
        asked(log, FIND)
        log.put(StepReleased(run_id="r", step="find", epoch=2))
        [again] = handoffs(log.tick(3))
    log.began("find", epoch=again.epoch)
    out = log.done("find", epoch=again.epoch, ops=[["set", ["address"], "Rue 1"]])
    assert [(h.step, h.epoch) for h in handoffs(out)] == [("ship", 2)]
    assert_restores(log)
    log.began("ship", epoch=2)
    log.done("ship", epoch=2, ops=[])
    assert view(log).state is RunState.SUCCEEDED


def test_reruns_of_a_run_are_bounded() -> None:
    log = Log()
    log.policy(supplier_reruns_max=1)
    asked(log, FIND)
    log.began("find", epoch=2)
    log.done("find", epoch=2, ops=[["set", ["address"], "Rue 1"]])
    log.began("ship", epoch=2)
    asks(log, "ship", "address", epoch=2)
    assert len(escalations(log.outputs)) == 1


def test_a_step_still_to_come_is_waited_for_unless_it_stands_behind() -> None:
    log = Log()
    log.start(
        plan_of(
            step("ask"),
            step("other", writes=("address",)),
            step("behind", needs=("ask",), writes=("note",)),
        )
    )
    log.began("ask")
    asks(log, "ask", "address")
    assert escalations(log.outputs) == []
    log.began("other")
    out = log.done("other", ops=[["set", ["address"], "Rue 1"]])
    assert [(h.step, h.epoch) for h in handoffs(out)] == [("ask", 2)]
    log.began("ask", epoch=2)
    asks(log, "ask", "note", epoch=2)
    assert len(escalations(log.outputs)) == 1


def test_the_supplier_queue_is_asked_before_a_person_and_its_answer_is_on_record() -> None:
    log = Log()
    log.policy(queues=("default", "facts"), supplier_queue="facts", supplier_wait_ms=5_000)
    asked(log, step("find"))
    (question,) = (o.action for o in log.outputs if getattr(o.action, "queue", "") == "facts")
    assert question.handoff.goal == "Supply address: step ship needs it."
    assert question.handoff.writes == ("address",)
    assert escalations(log.outputs) == []
    out = log.put(
        InformationSupplied(
            run_id="r",
            information_id="i",
            ops=pack([["set", ["address"], "Rue 1"]]),
            origin="crm",
            source="facts-service",
        )
    )
    assert [(h.step, h.epoch) for h in handoffs(out)] == [("ship", 2)]
    (record,) = transitions(out)
    assert (record.cause, record.actor) == ("InformationSupplied", "facts-service")


def test_a_queue_that_does_not_answer_gives_way_to_a_person() -> None:
    log = Log()
    log.policy(queues=("default", "facts"), supplier_queue="facts", supplier_wait_ms=5_000)
    asked(log, step("find"))
    log.tick(6)
    (question,) = escalations(log.outputs)
    assert question.missing_fields == ("address",)
    assert row(log, "ship").state is StepState.MISSING_INFO
    assert_restores(log)


def test_facts_that_do_not_fit_are_refused_and_the_question_stands() -> None:
    log = asked(Log(), step("find"))
    bad = pack([["set", ["address", "zip"], 1]])
    log.put(InformationSupplied(run_id="r", information_id="i", ops=bad, origin="crm"))
    assert log.outcomes == [Outcome.REFUSED]
    assert row(log, "ship").state is StepState.MISSING_INFO


def test_a_pivot_is_not_run_again_for_a_fact() -> None:
    log = asked(Log(), step("find", may_write=("address",), pivot=True))
    assert len(escalations(log.outputs)) == 1
    assert row(log, "find").state is StepState.COMPLETED


def test_a_question_that_no_queue_takes_goes_to_a_person() -> None:
    log = Log()
    log.policy(queues=("default", "facts"), supplier_queue="facts", dispatch_bytes_max=1_000)
    log.start(plan_of(step("ship", reads=("note", "address"))), context={"note": "x" * 2_000})
    assert handoffs(log.outputs) == []
    (question,) = escalations(log.outputs)
    assert question.missing_fields == ("address",)
    assert_restores(log)


def test_whoever_was_asked_before_is_not_waited_for_in_the_name_of_a_supplier() -> None:
    log = Log()
    log.policy(supplier_reruns_max=3, reminder_first_ms=0, person_wait_ms=60_000)
    log.start(
        plan_of(step("find", may_write=("address",)), step("ship", needs=("find",))),
        ttl_ms=1_000_000_000,
    )
    log.began("find")
    log.done("find", ops=[])
    log.began("ship")
    asks(log, "ship", "name")
    ops = pack([["set", ["name"], "Ana"]])
    log.put(InformationSupplied(run_id="r", information_id="i", ops=ops, origin="crm"))
    log.began("ship", epoch=2)
    asks(log, "ship", "address", epoch=2)
    log.began("find", epoch=2)
    log.done("find", epoch=2, ops=[])
    questions = [question.missing_fields for question in escalations(log.outputs)]
    assert questions == [("name",), ("address",)]
    assert_restores(log)
