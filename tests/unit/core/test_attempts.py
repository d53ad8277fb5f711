"""Epochs, budgets, start limits, timeouts, releases."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.core.log import (
    Log,
    answers,
    assert_restores,
    chain,
    dead_letters,
    escalations,
    handoffs,
    plan_of,
    row,
    step,
    transitions,
    view,
)

from dalsegno.schemas.control import StallSuspected, Verdict
from dalsegno.schemas.events import (
    FailureType,
    RunCancelled,
    StepFailed,
    StepProgressed,
    StepReleased,
)
from dalsegno.schemas.outputs import AnswerType, Outcome, RunState, StepState
from dalsegno.schemas.plan import RetryPolicy
from dalsegno.streams.core.partition import Partition


def failed(
    name: str, epoch: int = 1, kind: FailureType = FailureType.TRANSIENT, **fields: object
) -> StepFailed:
    event = StepFailed(run_id="r", step=name, epoch=epoch, failure_type=kind)
    return msgspec.structs.replace(event, **fields)


def verdict(log: Log, what: Verdict, epoch: int = 1, **fields: object) -> StallSuspected:
    event = StallSuspected(
        run_id="r",
        step="s0",
        epoch=epoch,
        verdict=what,
        events_offset=log.partition.position,
        heartbeats_at_ms=log.now_ms,
    )
    return msgspec.structs.replace(event, **fields)


def until_handoff(log: Log, seconds: int = 120) -> int:
    """Lets time pass until a handoff comes out; its epoch."""
    for _ in range(seconds):
        out = handoffs(log.tick())
        if out:
            return out[0].epoch
    raise AssertionError("no handoff came")


def test_a_transient_failure_comes_back_with_the_next_epoch_after_a_delay() -> None:
    log = Log()
    log.start(chain(1))
    log.began("s0")
    assert handoffs(log.put(failed("s0"))) == []
    assert row(log, "s0").state is StepState.BACKING_OFF
    assert (view(log).state, view(log).waiting_for) == (RunState.WAITING, "time")
    assert until_handoff(log) == 2
    log.done("s0", epoch=1)
    assert log.outcomes == [Outcome.SUPERSEDED]
    log.began("s0", epoch=2)
    log.done("s0", epoch=2)
    assert view(log).state is RunState.SUCCEEDED


def test_a_repeat_of_what_closed_an_epoch_is_a_duplicate_all_else_is_superseded() -> None:
    log = Log()
    log.start(chain(1))
    log.began("s0")
    log.put(failed("s0"))
    assert log.put(failed("s0")) == []
    assert log.outcomes == [Outcome.DUPLICATE]
    out = log.done("s0", reply_to="w")
    assert log.outcomes == [Outcome.SUPERSEDED]
    (answer,) = answers(out)
    assert (answer.answer, answer.current_epoch) == (AnswerType.SUPERSEDED, 2)
    assert len(transitions(out)) == 1, "a superseded event of a known run is on record"


def test_a_superseded_attempt_changes_nothing() -> None:
    log = Log()
    log.start(chain(2))
    log.began("s0")
    log.put(failed("s0"))
    until_handoff(log)
    before = view(log)
    for event in (
        failed("s0"),
        StepProgressed(run_id="r", step="s0", epoch=1, progress=9),
        StepReleased(run_id="r", step="s0", epoch=1),
    ):
        log.put(event)
        assert log.outcomes == [Outcome.SUPERSEDED]
    log.began("s0", epoch=1)
    assert log.outcomes == [Outcome.SUPERSEDED]
    assert view(log) == before


def test_a_report_of_an_epoch_that_was_never_given_out_is_refused() -> None:
    log = Log()
    log.start(chain(2))
    log.began("s0", epoch=2)
    assert log.outcomes == [Outcome.REFUSED]
    log.began("s1", epoch=1)
    assert log.outcomes == [Outcome.REFUSED]
    log.began("nothing")
    assert log.outcomes == [Outcome.REFUSED]
    log.done("s0")
    assert log.outcomes == [Outcome.REFUSED], "it has not started"


def test_application_and_infrastructure_budgets_do_not_use_up_each_other() -> None:
    log = Log()
    log.start(chain(1, retry=RetryPolicy(max_attempts=1, max_infra_attempts=2)))
    log.began("s0")
    (handoff,) = handoffs(log.put(verdict(log, Verdict.SILENT)))
    assert (handoff.epoch, row(log, "s0").infra_failures) == (2, 1)
    log.began("s0", epoch=2)
    out = log.put(failed("s0", epoch=2))
    assert escalations(out)[0].reason == "attempts_exhausted"
    assert row(log, "s0").state is StepState.ESCALATED


def test_a_dependency_failure_is_an_infrastructure_fault() -> None:
    log = Log()
    log.start(chain(1, retry=RetryPolicy(max_attempts=1, max_infra_attempts=2)))
    log.began("s0")
    log.put(failed("s0", kind=FailureType.DEPENDENCY))
    assert (row(log, "s0").failures, row(log, "s0").infra_failures) == (0, 1)
    assert until_handoff(log) == 2
    log.began("s0", epoch=2)
    out = log.put(failed("s0", epoch=2, kind=FailureType.DEPENDENCY))
    assert escalations(out)[0].reason == "infra_attempts_exhausted"


def test_retry_after_is_honoured_within_the_policys_bound() -> None:
    log = Log()
    log.policy(retry_after_max_ms=50_000)
    log.start(chain(1))
    log.began("s0")
    log.put(failed("s0", retry_after_ms=3_600_000))
    assert handoffs(log.tick(49)) == []
    assert len(handoffs(log.tick(1))) == 1


def test_the_delay_grows_over_failures_of_different_types() -> None:
    log = Log()
    log.start(chain(1, retry=RetryPolicy(max_attempts=9, initial_ms=1_000, max_ms=60_000)))
    delays: list[int] = []
    for epoch, kind in enumerate((FailureType.TRANSIENT, FailureType.DEPENDENCY) * 2, 1):
        log.began("s0", epoch=epoch)
        at = log.now_ms
        log.put(failed("s0", epoch=epoch, kind=kind))
        until_handoff(log)
        delays.append(log.now_ms - at)
    assert delays == sorted(delays)
    assert delays[-1] >= 4_000


@pytest.mark.parametrize("kind", [FailureType.INVALID, FailureType.PERMANENT, FailureType.UNSAFE])
def test_failures_that_a_retry_cannot_mend_go_to_a_person(kind: FailureType) -> None:
    log = Log()
    log.start(plan_of(step("s0"), step("other"), step("behind", needs=("other",))))
    log.began("s0")
    log.began("other")
    out = log.put(failed("s0", kind=kind))
    assert escalations(out)[0].failure_type == kind
    out = log.done("other", ops=[])
    gated = kind is FailureType.UNSAFE
    assert bool(handoffs(out)) is not gated, "after an unsafe failure nothing further starts"
    assert (view(log).gate == "unsafe:s0") is gated
    assert_restores(log)


def test_nobody_answers_in_time_and_the_run_fails() -> None:
    log = Log()
    log.policy(person_wait_ms=5_000)
    log.start(chain(1), reply_to="me")
    log.began("s0")
    log.put(failed("s0", kind=FailureType.PERMANENT))
    log.tick(4)
    assert view(log).state is RunState.WAITING
    out = log.tick(1)
    assert view(log).state is RunState.FAILED
    assert answers(out)[0].run_state is RunState.FAILED


def test_a_queue_without_workers_costs_no_attempts_and_intervals_grow() -> None:
    log = Log()
    log.start(chain(1, retry=RetryPolicy(max_attempts=1, max_infra_attempts=1)))
    gaps: list[int] = []
    last = log.now_ms
    for epoch in range(2, 7):
        assert until_handoff(log, 200) == epoch
        gaps.append(log.now_ms - last)
        last = log.now_ms
    assert gaps == sorted(gaps)
    assert gaps[-1] > gaps[0]
    assert (row(log, "s0").failures, row(log, "s0").infra_failures) == (0, 0)


def test_a_start_at_or_after_the_limit_is_refused_by_its_append_time() -> None:
    log = Log()
    (handoff,) = handoffs(log.start(chain(1)))
    log.now_ms = handoff.start_by_ms
    out = log.began("s0", reply_to="w")
    assert log.outcomes == [Outcome.REFUSED]
    assert answers(out)[0].reason == "start_by_passed"
    log.now_ms += 1_000
    event_at = handoff.start_by_ms - 1
    from dalsegno.schemas.events import StepStarted

    log.put(StepStarted(run_id="r", step="s0", epoch=1, worker="w"), at_ms=event_at)
    assert log.outcomes == [Outcome.APPLIED], "append time went back; the start came in time"


def test_an_epoch_does_not_expire_while_the_owner_stood_still() -> None:
    log = Log()
    log.start(chain(1))
    log.now_ms += 3_600_000
    log.tick(1)
    assert row(log, "s0").state is StepState.DISPATCHED, "one tick moves live time by 3 s at most"
    log.tick(40)
    assert row(log, "s0").epoch >= 1
    assert row(log, "s0").state is not StepState.RUNNING


def test_the_start_limit_has_to_pass_on_both_clocks() -> None:
    log = Log()
    log.policy(start_limit_ms=10_000, start_margin_ms=20_000)
    log.start(chain(1))
    log.tick(29)
    assert row(log, "s0").state is StepState.DISPATCHED
    log.tick(1)
    assert row(log, "s0").state is StepState.BACKING_OFF


def test_a_running_step_times_out_on_live_time_and_its_worker_is_told() -> None:
    log = Log()
    log.start(chain(1))
    log.began("s0", reply_to="w")
    log.now_ms += 3_600_000
    log.tick(1)
    assert row(log, "s0").state is StepState.RUNNING
    out = log.tick(10)
    assert row(log, "s0").infra_failures == 1
    (answer,) = answers(out)
    assert (answer.answer, answer.reply_to, answer.epoch) == (AnswerType.SUPERSEDED, "w", 1)


def test_a_released_handoff_comes_back_uncharged_and_its_epoch_is_over() -> None:
    log = Log()
    log.start(chain(1, retry=RetryPolicy(max_attempts=1, max_infra_attempts=1)))
    release = StepReleased(run_id="r", step="s0", epoch=1, reason="no_compatible_worker")
    (told,) = transitions(log.put(release))
    assert log.outcomes == [Outcome.APPLIED]
    assert told.detail == "no_compatible_worker", "the run shows why it does not start"
    log.put(release)
    assert log.outcomes == [Outcome.DUPLICATE]
    log.began("s0")
    assert log.outcomes == [Outcome.SUPERSEDED]
    assert until_handoff(log) == 2
    log.began("s0", epoch=2)
    log.put(StepReleased(run_id="r", step="s0", epoch=2))
    assert log.outcomes == [Outcome.REFUSED], "it has started"
    assert (row(log, "s0").failures, row(log, "s0").infra_failures) == (0, 0)


def test_a_second_worker_may_not_start_the_same_epoch() -> None:
    log = Log()
    log.start(chain(1))
    log.began("s0")
    log.began("s0")
    assert log.outcomes == [Outcome.DUPLICATE]
    out = log.began("s0", worker="another", reply_to="x")
    assert log.outcomes == [Outcome.REFUSED]
    assert answers(out)[0].reason == "already_started"


def test_a_timer_of_a_state_that_is_over_does_nothing() -> None:
    """A paused run's old backoff must not start a second attempt."""
    from dalsegno.schemas.events import RunPaused, RunResumed

    log = Log()
    log.start(chain(1, retry=RetryPolicy(initial_ms=30_000, max_ms=30_000)))
    log.began("s0")
    log.put(failed("s0"))
    log.tick(5)
    log.put(RunPaused(run_id="r", request_id="1"))
    log.tick(1)
    log.put(RunResumed(run_id="r", request_id="2"))
    out = handoffs(log.tick(29))
    assert [h.epoch for h in out] == [2]
    log.began("s0", epoch=2)
    assert handoffs(log.tick(5)) == []


def test_a_run_cancelled_in_its_backoff_is_never_retried_also_after_a_restore() -> None:
    """R099: what was cancelled while it waited for its retry was retried without end."""
    log = Log()
    log.start(chain(1, retry=RetryPolicy(initial_ms=30_000, max_ms=30_000)))
    log.began("s0")
    log.put(failed("s0"))
    assert row(log, "s0").state is StepState.BACKING_OFF
    log.put(RunCancelled(run_id="r", request_id="c"))
    assert view(log).state is RunState.CANCELLED
    log.partition = Partition.restore(0, log.partition.parts().items())
    assert not log.partition.needs_tick
    for _ in range(60):
        assert handoffs(log.tick(10)) == []


def test_each_epoch_that_was_lost_is_charged_once() -> None:
    log = Log()
    log.start(chain(1))
    (handoff,) = handoffs(log.put(verdict(log, Verdict.LOST)))
    assert (handoff.epoch, log.outcomes) == (2, [Outcome.APPLIED])
    assert row(log, "s0").infra_failures == 1
    log.put(verdict(log, Verdict.LOST))
    assert log.outcomes == [Outcome.SUPERSEDED]
    assert until_handoff(log) == 3, "epoch 2 expired, and nobody was charged"
    assert row(log, "s0").infra_failures == 1
    log.put(verdict(log, Verdict.LOST, epoch=2))
    assert log.outcomes == [Outcome.APPLIED]
    assert row(log, "s0").infra_failures == 2
    log.put(verdict(log, Verdict.LOST, epoch=2))
    assert log.outcomes == [Outcome.SUPERSEDED]
    assert row(log, "s0").infra_failures == 2
    assert dead_letters(log.outputs) == []


def test_the_policys_retries_hold_for_steps_that_declare_none() -> None:
    log = Log()
    log.policy(retry_default=RetryPolicy(max_attempts=1, initial_ms=7_000, max_ms=7_000))
    log.start(plan_of(step("s0"), step("s1", retry=RetryPolicy(max_attempts=2))))
    for name in ("s0", "s1"):
        log.began(name)
        log.put(failed(name))
    assert (row(log, "s0").state, row(log, "s0").reason) == (
        StepState.ESCALATED,
        "attempts_exhausted",
    )
    assert row(log, "s1").state is StepState.BACKING_OFF
    log.policy(retry_default=RetryPolicy(max_attempts=3, initial_ms=7_000, max_ms=7_000))
    log.start(plan_of(step("s0")), run_id="other")
    log.began("s0", run_id="other")
    log.put(failed("s0", run_id="other"))
    assert 3_500 <= row(log, "s0", "other").due_ms - log.now_ms <= 7_000
    assert_restores(log)


def test_a_policy_whose_retries_cannot_be_meant_is_refused() -> None:
    log = Log()
    log.policy(retry_default=RetryPolicy(max_attempts=0))
    assert log.outcomes == [Outcome.REFUSED]
    assert transitions(log.outputs) == []
