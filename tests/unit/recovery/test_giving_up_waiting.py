"""A hurt step that waits behind another when the run's time is over, and not for its own turn."""

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
from tests.unit.people.asking import decide
from tests.unit.recovery.test_giving_up import QUICK, TTL_MS, fails, time_is_over

from dalsegno.schemas.events import FailureType, InformationSupplied, StepFailed
from dalsegno.schemas.outputs import RunState, StepState
from dalsegno.schemas.plan import RecoverPolicy
from dalsegno.streams.core.recovery.giving_up import REASON


def ahead_of_its_needs(kind: FailureType) -> Log:
    """A service has begun its step ahead of what that needs, and failed; so the engine gives the
    step out from now on, once its needs are met. These hang.
    """
    log = Log()
    own = step(
        "book", queue="", needs=("check", "plan"), recover=RecoverPolicy.REDISPATCH,
        depends_on=("bank",), retry=QUICK, timeout_ms=1_000,
    )  # fmt: skip
    short = {"timeout_ms": 20_000}
    log.start(plan_of(step("check", **short), step("plan", **short), own), ttl_ms=TTL_MS)
    log.began("check")
    log.began("plan")
    log.done("plan", ops=[])
    log.began("book", 0, attempt=1)
    log.put(StepFailed(run_id="r", step="book", epoch=0, attempt=1, failure_type=kind))
    log.tick(2)
    assert row(log, "book").state is StepState.PENDING
    return log


def test_a_hurt_step_that_is_pending_is_put_to_a_person() -> None:
    log = ahead_of_its_needs(FailureType.DEPENDENCY)
    (asked,) = time_is_over(log)
    assert (asked.reason, asked.step, asked.dependency) == (REASON, "book", "bank")
    assert asked.evidence == "waits behind check"
    assert row(log, "book").state is StepState.ESCALATED
    assert view(log).state is RunState.RUNNING
    assert row(log, "check").state is StepState.RUNNING, "it runs on: nothing is known against it"
    assert log.partition.previews.unowned("r") == []
    assert_restores(log)
    # A person's word stands until its needs are met, and nothing is lost of it.
    assert handoffs(decide(log, asked, "retry")) == []
    assert row(log, "book").state is StepState.PENDING
    given = handoffs(log.done("check", ops=[]))
    assert [(handoff.step, handoff.epoch) for handoff in given] == [("book", 1)]


def test_one_that_failed_by_its_own_word_expires_with_its_run() -> None:
    log = ahead_of_its_needs(FailureType.TRANSIENT)
    assert time_is_over(log) == []
    assert view(log).state is RunState.EXPIRED


def waits_for_a_rerun(*, hurt: bool) -> Log:
    """`ship` misses the address, and `find` is run again for it, and hangs."""
    log = Log()
    log.policy(supplier_reruns_max=1)
    find = step("find", may_write=("address",), retry=QUICK, timeout_ms=20_000)
    ship = step("ship", needs=("find",), retry=QUICK, depends_on=("bank",), timeout_ms=9_000)
    log.start(plan_of(find, ship), ttl_ms=TTL_MS)
    log.began("find")
    log.done("find", ops=[])
    log.began("ship")
    if hurt:
        fails(log, "ship")
        log.tick()
        log.began("ship", epoch=2)
    missing = FailureType.MISSING_INFO
    epoch = row(log, "ship").epoch
    log.put(
        StepFailed(
            run_id="r", step="ship", epoch=epoch, failure_type=missing, missing_fields=("address",)
        )
    )
    log.began("find", epoch=2)
    assert row(log, "ship").state is StepState.MISSING_INFO
    assert escalations(log.outputs) == []
    return log


@pytest.mark.parametrize("who", ["the rerun", "a person"])
def test_a_hurt_step_that_waits_behind_a_rerun_is_put_to_a_person(who: str) -> None:
    log = waits_for_a_rerun(hurt=True)
    (asked,) = time_is_over(log)
    assert (asked.asked, asked.step) == ("information", "ship")
    assert asked.missing_fields == ("address",)
    assert row(log, "ship").state is StepState.MISSING_INFO
    assert row(log, "find").state is StepState.RUNNING, "it may still bring what is missing"
    assert (view(log).state, view(log).waiting_for) == (RunState.RUNNING, "")
    assert view(log).expires_ms > log.now_ms + log.partition.policy.person_wait_ms
    assert log.partition.previews.unowned("r") == []
    assert_restores(log)
    if who == "the rerun":
        out = log.done("find", epoch=2, ops=[["set", ["address"], "Rue 1"]])
    else:
        ops = b"\x91\x93\xa3set\x91\xa7address\xa5Rue 1"
        out = log.put(InformationSupplied(run_id="r", information_id="i", ops=ops, origin="ada"))
    assert [(handoff.step, handoff.epoch) for handoff in handoffs(out)] == [("ship", 3)]


def test_one_that_was_never_hurt_expires_with_its_run() -> None:
    log = waits_for_a_rerun(hurt=False)
    assert time_is_over(log) == []
    assert view(log).state is RunState.EXPIRED


def test_a_person_who_was_asked_for_the_fields_is_not_asked_again() -> None:
    log = waits_for_a_rerun(hurt=True)
    log.done("find", epoch=2, ops=[])
    (asked,) = escalations(log.outputs)
    assert asked.asked == "information"
    assert time_is_over(log) == []
    assert view(log).state is RunState.EXPIRED
