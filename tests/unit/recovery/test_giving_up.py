"""An outage that outlasts the run's time to live goes to a person, once, with what is known."""

from __future__ import annotations

import pytest
from tests.unit.core.log import (
    Log,
    answers,
    assert_restores,
    chain,
    escalations,
    handoffs,
    plan_of,
    row,
    step,
    transitions,
    view,
)
from tests.unit.core.point_log import PointLog
from tests.unit.people.asking import decide
from tests.unit.recovery.test_freezing import freeze
from tests.unit.saga.orders import did, intend, undo

from dalsegno.schemas.control import BreakerState, StallSuspected, Verdict
from dalsegno.schemas.events import FailureType, StepFailed
from dalsegno.schemas.outputs import (
    AnswerType,
    EffectStatus,
    Escalation,
    Outcome,
    RunState,
    StepState,
)
from dalsegno.schemas.plan import OnFailure, RecoverPolicy, RetryPolicy
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
    assert [t.reason for t in transitions(log.outputs) if t.cause == "timer:ttl"] == [REASON]
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


QUICK = RetryPolicy(initial_ms=10, max_ms=10, max_attempts=9, max_infra_attempts=9)
TTL_MS = 60_000
ALL_IDLE = (0, 0)


def fails(log: Log, name: str, epoch: int = 1, kind: str = FailureType.DEPENDENCY) -> None:
    failure = FailureType(kind)
    log.put(
        StepFailed(
            run_id="r", step=name, epoch=epoch, failure_type=failure, dependency="bank"
        )
    )  # fmt: skip


def hurt(log: Log, *names: str, kind: str = FailureType.DEPENDENCY) -> None:
    """The first attempts fail; the second ones are out."""
    for name in names:
        log.began(name)
        fails(log, name, kind=kind)
    given = {(handoff.step, handoff.epoch) for handoff in handoffs(log.tick())}
    assert given == {(name, 2) for name in names}


def time_is_over(log: Log) -> list[Escalation]:
    """The run's time to live passes at once, so that no attempt comes to its own limits."""
    log.now_ms += TTL_MS
    return escalations(log.tick())


def counted(log: Log) -> tuple[int, int]:
    """Attempts in flight, and those of them that the pace of recovery counts."""
    return log.partition.in_flight, log.partition._now.recovery.pace.in_flight


def test_an_attempt_that_runs_when_time_is_over_is_superseded_and_a_person_asked() -> None:
    log = Log()
    log.start(chain(2, retry=QUICK, depends_on=("bank",)), ttl_ms=TTL_MS)
    hurt(log, "s0")
    log.began("s0", 2, reply_to="replies")
    since = len(log.outputs)
    (asked,) = time_is_over(log)
    assert (asked.reason, asked.step, asked.dependency) == (REASON, "s0", "bank")
    assert "1 attempts lost" in asked.message
    assert asked.evidence == "epoch 2 out for 61000 ms, progress 0, worker w"
    (told,) = answers(log.outputs[since:])
    assert (told.answer, told.epoch, told.reason) == (AnswerType.SUPERSEDED, 2, "timer:ttl")
    assert row(log, "s0").state is StepState.ESCALATED
    assert (view(log).state, view(log).waiting_for) == (RunState.WAITING, "person")
    assert counted(log) == ALL_IDLE
    assert log.partition.previews.unowned("r") == []
    assert_restores(log)
    # Whatever that attempt says now comes too late; the next one is a person's word.
    log.done("s0", 2)
    assert log.outcomes == [Outcome.SUPERSEDED]
    fails(log, "s0", 2)
    assert log.outcomes == [Outcome.SUPERSEDED]
    assert [handoff.epoch for handoff in handoffs(decide(log, asked, "retry"))] == [3]
    log.began("s0", 3)
    log.done("s0", 3)
    assert row(log, "s0").state is StepState.COMPLETED


def test_an_attempt_that_nobody_has_started_is_superseded_too() -> None:
    log = Log()
    log.policy(start_limit_ms=3_600_000)
    log.start(chain(1, retry=QUICK, depends_on=("bank",)), ttl_ms=TTL_MS)
    hurt(log, "s0")
    (asked,) = time_is_over(log)
    assert (asked.reason, asked.step) == (REASON, "s0")
    assert asked.evidence == "epoch 2 out for 61000 ms, not started"
    assert row(log, "s0").state is StepState.ESCALATED
    assert counted(log) == ALL_IDLE
    assert_restores(log)
    log.began("s0", 2)
    assert log.outcomes == [Outcome.SUPERSEDED]
    # It may be given out again at once: its start comes too late, whenever it comes.
    assert [handoff.epoch for handoff in handoffs(decide(log, asked, "retry"))] == [3]


def test_after_a_lost_worker_its_further_attempt_is_put_to_a_person() -> None:
    log = Log()
    log.start(chain(1, retry=QUICK), ttl_ms=TTL_MS)
    log.began("s0")
    lost = StallSuspected(
        run_id="r", step="s0", epoch=1, verdict=Verdict.SILENT, worker="w",
        heartbeats_at_ms=log.now_ms, events_offset=log.partition.position,
    )  # fmt: skip
    assert [handoff.epoch for handoff in handoffs(log.put(lost))] == [2]
    log.began("s0", 2)
    (asked,) = time_is_over(log)
    assert (asked.step, row(log, "s0").state) == ("s0", StepState.ESCALATED)


def test_each_hurt_step_is_asked_about_and_what_is_not_hurt_runs_on() -> None:
    log = Log()
    names = ("out", "given", "waits", "well")
    plan = plan_of(
        *(step(name, depends_on=("bank",), retry=QUICK, timeout_ms=50_000) for name in names)
    )
    log.policy(start_limit_ms=3_600_000)
    log.start(plan, ttl_ms=TTL_MS)
    log.began("well")
    hurt(log, "out", "given", "waits")
    log.began("out", 2)
    log.began("waits", 2)
    # One record: the retry of this one is due only after the end of the run's time.
    log.put(
        StepFailed(
            run_id="r", step="waits", epoch=2, failure_type=FailureType.DEPENDENCY,
            retry_after_ms=100_000,
        )
    )  # fmt: skip
    asked = time_is_over(log)
    assert [package.step for package in asked] == ["out", "given", "waits"]
    assert [package.evidence[:11] for package in asked] == ["epoch 2 out", "epoch 2 out", ""]
    assert row(log, "well").state is StepState.RUNNING
    assert view(log).state is RunState.RUNNING
    assert counted(log) == (1, 0)
    assert_restores(log)
    log.done("well", ops=[])
    assert log.outcomes == [Outcome.APPLIED]
    assert view(log).state is RunState.WAITING


def test_no_more_than_sixteen_are_asked_about_and_the_others_go_on() -> None:
    log = Log()
    names = tuple(f"p{number:02}" for number in range(18))
    log.start(plan_of(*(step(name, retry=QUICK) for name in names)), ttl_ms=TTL_MS)
    hurt(log, *names)
    for name in names:
        log.began(name, 2)
    assert len(time_is_over(log)) == 16
    assert counted(log) == (2, 2)
    log.done("p17", 2, ops=[])
    assert log.outcomes == [Outcome.APPLIED]


def test_what_it_may_have_done_is_shown_as_unknown_and_stays_in_the_journal() -> None:
    log = Log()
    log.start(chain(1, retry=QUICK, depends_on=("bank",)), ttl_ms=TTL_MS)
    hurt(log, "s0")
    log.began("s0", 2)
    intend(log, "s0", "pay", 2)
    (asked,) = time_is_over(log)
    assert [(each.effect, each.status) for each in asked.effects] == [
        ("pay", EffectStatus.UNKNOWN)
    ]  # fmt: skip
    (handoff,) = handoffs(decide(log, asked, "retry"))
    assert [(each.effect, each.status) for each in handoff.effects] == [
        ("pay", EffectStatus.UNKNOWN)
    ]  # fmt: skip


def test_the_permit_that_it_has_comes_back() -> None:
    log = PointLog()
    log.start(chain(1, retry=QUICK, depends_on=("pay",)), ttl_ms=TTL_MS)
    log.state(BreakerState.HALF_OPEN)
    log.fail("r")
    log.tick()
    assert row(log, "s0").state is StepState.HELD
    (probe,) = log.grant(1, lease_ms=3_600_000)
    log.began("s0", probe.epoch)
    points = log.partition._now.points
    assert points._running["pay"]
    (asked,) = time_is_over(log)
    assert asked.step == "s0"
    assert not points._running["pay"]
    assert_restores(log)


def test_a_run_that_goes_back_by_its_plan_turns_round_instead() -> None:
    log = Log()
    plan = plan_of(
        step("a", compensate="ua", timeout_ms=10_000),
        step("b", needs=("a",), depends_on=("bank",), retry=QUICK, timeout_ms=10_000),
        undo("ua"),
        on_failure=OnFailure.COMPENSATE,
    )
    log.start(plan, ttl_ms=TTL_MS)
    did(log, "a")
    hurt(log, "b")
    log.began("b", 2, reply_to="replies")
    since = len(log.outputs)
    assert time_is_over(log) == []
    (told,) = answers(log.outputs[since:])
    assert (told.step, told.answer) == ("b", AnswerType.CANCELLED)
    assert view(log).state is RunState.COMPENSATING
    assert [handoff.step for handoff in handoffs(log.outputs[since:])] == ["ua"]


def test_with_nothing_to_take_back_a_person_is_asked() -> None:
    log = Log()
    plan = plan_of(
        step("b", depends_on=("bank",), retry=QUICK, compensate="ub"),
        undo("ub"),
        on_failure=OnFailure.COMPENSATE,
    )
    log.start(plan, ttl_ms=TTL_MS)
    hurt(log, "b")
    log.began("b", 2)
    (asked,) = time_is_over(log)
    assert (asked.step, asked.reason) == ("b", REASON)


@pytest.mark.parametrize("started", [True, False])
def test_a_further_attempt_after_its_own_word_expires_with_its_run(*, started: bool) -> None:
    log = Log()
    log.policy(start_limit_ms=3_600_000)
    log.start(chain(1, retry=QUICK), ttl_ms=TTL_MS)
    hurt(log, "s0", kind=FailureType.TRANSIENT)
    if started:
        log.began("s0", 2)
    assert time_is_over(log) == []
    assert view(log).state is RunState.EXPIRED


def test_a_run_that_hangs_in_its_first_attempt_expires() -> None:
    log = Log()
    log.start(chain(1, retry=QUICK, depends_on=("bank",)), ttl_ms=TTL_MS)
    log.began("s0")
    assert time_is_over(log) == []
    assert view(log).state is RunState.EXPIRED


def own_attempt(recover: RecoverPolicy) -> tuple[Log, Escalation]:
    """A service drives its step itself; its second attempt hangs."""
    log = Log()
    mine = step("call", queue="", recover=recover, depends_on=("bank",), retry=QUICK)
    log.start(plan_of(mine), ttl_ms=TTL_MS)
    for attempt in (1, 2):
        log.began("call", 0, attempt=attempt)
        if attempt == 1:
            kind = FailureType.DEPENDENCY
            log.put(StepFailed(run_id="r", step="call", epoch=0, attempt=1, failure_type=kind))
    (asked,) = time_is_over(log)
    assert (asked.step, row(log, "call").state) == ("call", StepState.ESCALATED)
    assert_restores(log)
    return log, asked


def test_an_attempt_of_a_service_stays_its_own_and_its_end_counts() -> None:
    log, _ = own_attempt(RecoverPolicy.NOTIFY)
    log.done("call", 0, ops=[], attempt=2)
    assert log.outcomes == [Outcome.APPLIED]
    assert view(log).state is RunState.SUCCEEDED


def test_one_that_the_engine_takes_over_is_superseded() -> None:
    log, asked = own_attempt(RecoverPolicy.REDISPATCH)
    log.done("call", 0, ops=[], attempt=2)
    assert log.outcomes == [Outcome.SUPERSEDED]
    decide(log, asked, "retry")
