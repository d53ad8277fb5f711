"""A hurt step that is ready when the run's time is over, and is kept from going by its run."""

from __future__ import annotations

import pytest
from tests.unit.core.log import Log, assert_restores, chain, handoffs, plan_of, row, step, view
from tests.unit.core.point_log import PointLog
from tests.unit.people.asking import decide
from tests.unit.recovery.test_giving_up import QUICK, TTL_MS, fails, time_is_over

from dalsegno.schemas.control import BreakerState
from dalsegno.schemas.events import FailureType, RunPaused, RunResumed
from dalsegno.schemas.outputs import RunState, StepState
from dalsegno.streams.core.recovery.giving_up import REASON


def pause(log: Log) -> None:
    log.put(RunPaused(run_id="r", request_id="p", source="ada", reason="let me look"))


def test_a_hurt_step_that_a_pause_holds_ready_is_put_to_a_person() -> None:
    log = Log()
    log.start(chain(2, retry=QUICK, depends_on=("bank",)), ttl_ms=TTL_MS)
    log.began("s0")
    pause(log)
    fails(log, "s0")
    log.tick()
    assert row(log, "s0").state is StepState.READY, "its retry is due, and the pause holds it"
    (asked,) = time_is_over(log)
    assert (asked.reason, asked.step, asked.dependency) == (REASON, "s0", "bank")
    assert "1 attempts lost" in asked.message
    assert asked.evidence == "ready, the run is paused by ada"
    assert row(log, "s0").state is StepState.ESCALATED
    assert view(log).state is RunState.PAUSED
    assert log.partition.previews.unowned("r") == []
    assert_restores(log)
    # A person's word stands until the pause ends, and nothing is lost of it.
    assert handoffs(decide(log, asked, "retry")) == []
    assert row(log, "s0").state is StepState.READY
    given = handoffs(log.put(RunResumed(run_id="r", request_id="q", source="ada")))
    assert [(handoff.step, handoff.epoch) for handoff in given] == [("s0", 2)]


def test_a_step_whose_turn_came_while_its_run_was_paused_is_put_to_a_person() -> None:
    log = PointLog()
    log.start(chain(1, retry=QUICK, depends_on=("pay",)), ttl_ms=TTL_MS)
    log.state(BreakerState.HALF_OPEN)
    log.fail("r")
    log.tick()
    assert row(log, "s0").state is StepState.HELD
    pause(log)
    assert log.grant(1) == []
    assert row(log, "s0").state is StepState.READY
    (asked,) = time_is_over(log)
    assert (asked.reason, asked.step) == (REASON, "s0")


def test_a_hurt_step_that_waits_for_room_in_its_run_is_put_to_a_person() -> None:
    log = Log()
    log.policy(step_concurrency_max=1)
    plan = plan_of(
        step("a", retry=QUICK, depends_on=("bank",)), step("b", timeout_ms=50_000, retry=QUICK)
    )
    log.start(plan, ttl_ms=TTL_MS)
    log.began("a")
    fails(log, "a")
    assert [handoff.step for handoff in handoffs(log.outputs)] == ["a", "b"]
    log.tick()
    assert row(log, "a").state is StepState.READY
    (asked,) = time_is_over(log)
    assert (asked.step, asked.evidence) == ("a", "ready, the run has no room for it")


@pytest.mark.parametrize("kind", [FailureType.TRANSIENT, None])
def test_a_paused_run_expires_where_nothing_is_brought_back(kind: FailureType | None) -> None:
    log = Log()
    log.start(chain(1, retry=QUICK), ttl_ms=TTL_MS)
    log.began("s0")
    pause(log)
    if kind is not None:
        fails(log, "s0", kind=kind)
        log.tick()
        assert row(log, "s0").state is StepState.READY
    assert time_is_over(log) == []
    assert view(log).state is RunState.EXPIRED
