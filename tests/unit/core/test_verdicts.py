"""The fold drops verdicts that know less than it does."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.core.log import (
    Log,
    answers,
    chain,
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
    EffectIntended,
    FailureType,
    StepCompleted,
    StepFailed,
    StepProgressed,
    StepStarted,
)
from dalsegno.schemas.outputs import AnswerType, Outcome, RunState, StepState
from dalsegno.schemas.plan import RecoverPolicy
from dalsegno.streams.core.effects import effect_key, recovery_key


def verdict(
    log: Log, what: Verdict, name: str = "s0", epoch: int = 1, **fields: object
) -> StallSuspected:
    event = StallSuspected(
        run_id="r",
        step=name,
        epoch=epoch,
        verdict=what,
        events_offset=log.partition.position,
        heartbeats_at_ms=log.now_ms,
    )
    return msgspec.structs.replace(event, **fields)


def test_a_silent_attempt_is_replaced_by_the_next_epoch_and_told_so() -> None:
    log = Log()
    log.start(chain(1))
    log.began("s0", reply_to="w")
    out = log.put(verdict(log, Verdict.SILENT))
    (answer,) = answers(out)
    assert (answer.answer, answer.reply_to, answer.current_epoch) == (AnswerType.SUPERSEDED, "w", 2)
    (handoff,) = handoffs(out)
    assert (handoff.epoch, row(log, "s0").state) == (2, StepState.DISPATCHED)
    log.done("s0")
    assert log.outcomes == [Outcome.SUPERSEDED]


def test_an_attempt_that_goes_on_beside_its_successor_changes_nothing_and_hears_stop() -> None:
    """R003: both complete; the result of the one that has the step stands."""
    log = Log()
    log.start(chain(1))
    log.began("s0", reply_to="first")
    log.put(verdict(log, Verdict.SILENT))
    log.began("s0", epoch=2, worker="other", reply_to="second")
    before = view(log)
    late = StepProgressed(run_id="r", step="s0", epoch=1, progress=9, save=b"x", reply_to="first")
    said = answers(log.put(late))
    assert log.outcomes == [Outcome.SUPERSEDED]
    said += answers(log.done("s0", epoch=1, ops=[["set", ["f0"], "X"]], reply_to="first"))
    assert log.outcomes == [Outcome.SUPERSEDED]
    assert view(log) == before
    assert [(a.answer, a.reply_to, a.current_epoch) for a in said] == [
        (AnswerType.SUPERSEDED, "first", 2)
    ] * 2
    log.done("s0", epoch=2, ops=[["set", ["f0"], "Y"]], reply_to="second")
    assert log.outcomes == [Outcome.APPLIED]
    assert view(log).state is RunState.SUCCEEDED
    assert msgspec.msgpack.decode(view(log).context) == {"f0": "Y"}
    assert log.partition.counts[Outcome.SUPERSEDED] == 2
    done = [t for t in transitions(log.outputs) if t.cause == "StepCompleted"]
    assert [t.outcome for t in done] == [Outcome.SUPERSEDED, Outcome.APPLIED]


@pytest.mark.parametrize("before", ["lost", "failed"])
def test_what_goes_wrong_a_second_time_waits(before: str) -> None:
    """The step itself may be what brings its workers down."""
    log = Log()
    log.start(chain(1))
    log.began("s0")
    failed = StepFailed(run_id="r", step="s0", epoch=1, failure_type=FailureType.TRANSIENT)
    log.put(verdict(log, Verdict.SILENT) if before == "lost" else failed)
    while row(log, "s0").state is not StepState.DISPATCHED:
        log.tick()
    log.began("s0", epoch=2)
    assert handoffs(log.put(verdict(log, Verdict.REPLACED, epoch=2, worker="w"))) == []
    assert row(log, "s0").state is StepState.BACKING_OFF


def test_a_verdict_that_has_not_read_the_last_report_is_dropped() -> None:
    log = Log()
    log.start(chain(1))
    log.began("s0")
    stale = verdict(log, Verdict.STUCK)
    log.put(StepProgressed(run_id="r", step="s0", epoch=1, progress=1))
    log.put(stale)
    assert log.outcomes == [Outcome.REFUSED]
    key = effect_key(recovery_key("r", "s0"), "e", 0)
    stale = verdict(log, Verdict.SILENT)
    log.put(EffectIntended(run_id="r", step="s0", epoch=1, effect="e", occurrence=0, key=key))
    log.put(stale)
    assert log.outcomes == [Outcome.REFUSED]
    assert row(log, "s0").state is StepState.RUNNING


def test_a_verdict_on_old_evidence_is_dropped() -> None:
    log = Log()
    log.start(chain(1))
    log.began("s0")
    log.put(verdict(log, Verdict.SILENT, heartbeats_at_ms=log.now_ms - 60_001))
    assert log.outcomes == [Outcome.REFUSED]
    log.put(verdict(log, Verdict.SILENT, heartbeats_at_ms=log.now_ms - 60_000))
    assert log.outcomes == [Outcome.APPLIED]


def test_lost_is_for_what_never_started_and_silent_for_what_runs() -> None:
    log = Log()
    log.start(chain(1))
    log.put(verdict(log, Verdict.SILENT))
    assert log.outcomes == [Outcome.REFUSED]
    log.put(verdict(log, Verdict.STUCK))
    assert log.outcomes == [Outcome.REFUSED]
    log.began("s0")
    log.put(verdict(log, Verdict.LOST))
    assert log.outcomes == [Outcome.REFUSED]


def test_an_attempt_that_is_stuck_is_told_to_a_person_once_and_goes_on() -> None:
    """R085: heartbeats arrive, and no progress. Only the step's own timeout ends it."""
    log = Log()
    log.start(chain(1))
    log.began("s0")
    stuck = verdict(log, Verdict.STUCK, elapsed_ms=31_000, threshold_ms=30_000)
    out = log.put(stuck)
    assert log.outcomes == [Outcome.APPLIED]
    (told,) = escalations(out)
    assert (told.step, told.reason) == ("s0", "stuck")
    assert "31000" in told.evidence + told.message
    assert handoffs(out) == []
    assert row(log, "s0").state is StepState.RUNNING
    assert escalations(log.put(verdict(log, Verdict.STUCK))) == []
    assert log.outcomes == [Outcome.DUPLICATE]
    log.done("s0")
    assert view(log).state is RunState.SUCCEEDED


def test_a_replaced_worker_loses_what_it_runs_and_what_it_only_took() -> None:
    log = Log()
    log.start(plan_of(step("s0"), step("s1")))
    log.began("s0", worker="w", incarnation=1)
    log.put(verdict(log, Verdict.REPLACED, "s0", worker="other"))
    assert log.outcomes == [Outcome.REFUSED], "another worker runs it"
    log.put(verdict(log, Verdict.REPLACED, "s0", worker="w"))
    assert log.outcomes == [Outcome.APPLIED]
    log.put(verdict(log, Verdict.REPLACED, "s1", worker="w"))
    assert log.outcomes == [Outcome.APPLIED]
    assert row(log, "s1").infra_failures == 1


def test_verdicts_on_runs_that_are_not_there_are_refused() -> None:
    log = Log()
    log.put(verdict(log, Verdict.LOST))
    assert log.outcomes == [Outcome.REFUSED]
    log.start(chain(1))
    log.began("s0")
    log.done("s0")
    log.put(verdict(log, Verdict.SILENT))
    assert log.outcomes == [Outcome.REFUSED]


def observed(recover: RecoverPolicy) -> Log:
    log = Log()
    log.start(plan_of(step("s0", queue="", recover=recover, timeout_ms=10_000)))
    assert handoffs(log.outputs) == []
    return log


def service_started(log: Log, attempt: int) -> None:
    log.put(StepStarted(run_id="r", step="s0", epoch=0, attempt=attempt, reply_to="svc"))


def service_done(log: Log, attempt: int) -> None:
    log.put(StepCompleted(run_id="r", step="s0", epoch=0, attempt=attempt, ops=b"\x90"))


def test_a_service_runs_its_own_step_and_its_own_retry_replaces_its_earlier_attempt() -> None:
    log = observed(RecoverPolicy.NOTIFY)
    service_started(log, 1)
    assert row(log, "s0").state is StepState.RUNNING
    service_started(log, 2)
    assert log.outcomes == [Outcome.APPLIED]
    service_done(log, 1)
    assert log.outcomes == [Outcome.SUPERSEDED]
    service_done(log, 2)
    assert view(log).state is RunState.SUCCEEDED


def test_a_services_report_is_taken_ahead_of_what_its_step_needs() -> None:
    log = Log()
    log.start(plan_of(step("a", queue=""), step("s0", queue="", needs=("a",))))
    service_started(log, 1)
    assert log.outcomes == [Outcome.APPLIED]
    service_done(log, 1)
    assert view(log).state is RunState.RUNNING
    log.put(StepCompleted(run_id="r", step="a", epoch=0, attempt=1, ops=b"\x90"))
    assert view(log).state is RunState.SUCCEEDED


def test_notify_tells_a_person_once_and_leaves_the_step_to_its_service() -> None:
    log = observed(RecoverPolicy.NOTIFY)
    service_started(log, 1)
    out = log.put(verdict(log, Verdict.SILENT, epoch=0))
    assert [e.asked for e in escalations(out)] == ["notice"]
    assert escalations(log.tick(30)) == []
    service_done(log, 1)
    assert view(log).state is RunState.SUCCEEDED


def test_person_waits_for_a_person_and_still_takes_the_services_report() -> None:
    log = observed(RecoverPolicy.PERSON)
    service_started(log, 1)
    out = log.put(verdict(log, Verdict.STUCK, epoch=0))
    assert [e.asked for e in escalations(out)] == ["decision"]
    assert row(log, "s0").state is StepState.ESCALATED
    service_done(log, 1)
    assert view(log).state is RunState.SUCCEEDED


def test_after_a_redispatch_the_services_own_attempt_is_superseded() -> None:
    log = observed(RecoverPolicy.REDISPATCH)
    service_started(log, 1)
    out = log.put(verdict(log, Verdict.SILENT, epoch=0))
    assert [(h.epoch, h.step) for h in handoffs(out)] == [(1, "s0")]
    assert answers(out)[0].answer is AnswerType.SUPERSEDED
    service_done(log, 1)
    assert log.outcomes == [Outcome.SUPERSEDED]
    log.began("s0", epoch=1)
    log.done("s0", epoch=1, ops=[])
    assert view(log).state is RunState.SUCCEEDED


def test_a_services_failure_waits_for_its_own_retry_and_then_for_a_person() -> None:
    log = observed(RecoverPolicy.NOTIFY)
    service_started(log, 1)
    log.put(
        StepFailed(run_id="r", step="s0", epoch=0, attempt=1, failure_type=FailureType.TRANSIENT)
    )
    assert row(log, "s0").state is StepState.BACKING_OFF
    service_started(log, 2)
    assert row(log, "s0").state is StepState.RUNNING
    log.put(
        StepFailed(run_id="r", step="s0", epoch=0, attempt=2, failure_type=FailureType.TRANSIENT)
    )
    out = log.tick(11)
    assert escalations(out)[0].reason == "not_retried"
    service_started(log, 3)
    service_done(log, 3)
    assert view(log).state is RunState.SUCCEEDED
