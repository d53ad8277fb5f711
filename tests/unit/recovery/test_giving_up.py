"""An outage that outlasts the run's time to live goes to a person, once, with what is known."""

from __future__ import annotations

from tests.unit.core.log import Log, assert_restores, chain, escalations, plan_of, row, step, view
from tests.unit.core.point_log import PointLog
from tests.unit.people.asking import decide
from tests.unit.recovery.test_freezing import freeze

from dalsegno.schemas.events import FailureType, StepFailed
from dalsegno.schemas.outputs import RunState, StepState
from dalsegno.schemas.plan import OnFailure, RetryPolicy
from dalsegno.streams.core.recovery.giving_up import REASON

SLOW = RetryPolicy(initial_ms=3_600_000, max_ms=3_600_000, max_attempts=9, max_infra_attempts=9)


def outage(log: Log) -> None:
    log.start(chain(2, retry=SLOW, depends_on=("bank",)), ttl_ms=60_000)
    log.began("s0")
    kind = FailureType.DEPENDENCY
    log.put(StepFailed(run_id="r", step="s0", epoch=1, failure_type=kind, dependency="bank"))
    log.now_ms += 61_000
    log.tick()


def test_the_hurt_step_is_put_to_a_person_and_the_run_lives_on() -> None:
    log = Log()
    outage(log)
    (asked,) = escalations(log.outputs)
    assert (asked.reason, asked.step) == (REASON, "s0")
    assert "62000 ms, 1 attempts lost" in asked.message
    assert row(log, "s0").state is StepState.ESCALATED
    assert (view(log).state, view(log).waiting_for) == (RunState.WAITING, "person")
    assert view(log).expires_ms > log.now_ms + log.partition.policy.person_wait_ms
    assert_restores(log)


def test_it_is_put_to_a_person_only_once() -> None:
    log = Log()
    log.policy(person_wait_ms=1_000_000_000, reminder_first_ms=0)
    outage(log)
    log.now_ms += 1_000_000_000 + 61_000
    log.tick()
    assert view(log).state in {RunState.EXPIRED, RunState.FAILED}


def test_a_run_that_only_failed_by_its_own_word_expires_as_before() -> None:
    log = Log()
    log.start(chain(2, retry=SLOW), ttl_ms=60_000)
    log.began("s0")
    kind = FailureType.TRANSIENT
    log.put(StepFailed(run_id="r", step="s0", epoch=1, failure_type=kind))
    log.now_ms += 61_000
    log.tick()
    assert view(log).state is RunState.EXPIRED


def test_what_stands_in_a_line_is_handed_over_too() -> None:
    log = Log()
    log.policy(freeze_stops_clocks=False)
    freeze(log)
    quick = RetryPolicy(initial_ms=10, max_ms=10, max_attempts=9, max_infra_attempts=9)
    log.start(chain(2, retry=quick, depends_on=("bank",)), ttl_ms=60_000)
    log.began("s0")
    kind = FailureType.DEPENDENCY
    log.put(StepFailed(run_id="r", step="s0", epoch=1, failure_type=kind, dependency="bank"))
    log.tick(3)
    assert row(log, "s0").state is StepState.HELD
    log.now_ms += 61_000
    log.tick()
    assert row(log, "s0").state is StepState.ESCALATED
    assert log.partition.previews.look(limit=1, width=1).waiting_steps == 0


def test_compensations_wait_for_an_outage_no_longer_than_the_run_had_to_live() -> None:
    log = PointLog()
    plan = plan_of(
        step("a", compensate="ua"),
        step("b", needs=("a",)),
        step("ua", role="compensation", depends_on=("pay",)),
        on_failure=OnFailure.COMPENSATE,
    )
    log.start(plan, "r", ttl_ms=600_000)
    log.began("a")
    log.done("a", ops=[])
    log.state()
    log.began("b")
    kind = FailureType.PERMANENT
    log.put(StepFailed(run_id="r", step="b", epoch=1, failure_type=kind))
    assert view(log).waiting_for == "fault point"
    assert log.partition.previews.unowned("r") == []
    assert_restores(log)
    assert escalations(log.later(599_000)) == []
    [package] = escalations(log.later(2_000))
    assert (package.step, package.reason) == ("ua", REASON)
    assert view(log).state is RunState.WAITING
    # A person lets it wait on: then it is asked about again, after as long.
    decide(log, package, "retry")
    assert row(log, "ua").state is StepState.HELD
    [again] = escalations(log.later(601_000))
    assert again.reason == REASON
    decide(log, again, "retry")
    assert [handoff.step for handoff in log.grant(1)] == ["ua"]
    log.began("ua", 1)
    log.done("ua", 1, ops=[])
    assert view(log).state is RunState.COMPENSATED


def test_a_time_to_live_that_is_over_does_not_stand_still() -> None:
    log = Log()
    freeze(log)
    retry = RetryPolicy(initial_ms=50_000, max_ms=50_000, max_attempts=9, max_infra_attempts=9)
    log.start(chain(2, retry=retry), ttl_ms=60_000)
    log.began("s0")
    kind = FailureType.TRANSIENT
    log.put(StepFailed(run_id="r", step="s0", epoch=1, failure_type=kind))
    # One tick finds the retry due, which the freeze holds, and then the end of its time.
    log.now_ms += 70_000
    log.tick()
    [asked] = escalations(log.outputs)
    assert (asked.reason, asked.step) == (REASON, "s0")
    assert (log.partition.next_log_deadline_ms or 0) > log.now_ms
