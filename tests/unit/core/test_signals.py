"""What a troubled run was missing, one case of each; corners of the four signals."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.core.log import Log, chain, plan_of, step
from tests.unit.people.asking import asked, decide, failed

from dalsegno.schemas.control import StallSuspected, Verdict
from dalsegno.schemas.events import (
    FailureType,
    InformationSupplied,
    RunCancelled,
    RunStarted,
    StepFailed,
    StepReleased,
)
from dalsegno.schemas.outputs import RunState
from dalsegno.streams.core.record import Unreadable
from dalsegno.streams.core.signals.figures import FlowReport, Troubled
from dalsegno.streams.core.signals.missing import Missing
from dalsegno.streams.core.signals.story import FINDINGS_MAX
from dalsegno.streams.core.signals.tally import Tally


class Told(Log):
    """A log whose signals are told as it goes."""

    def __init__(self) -> None:
        super().__init__()
        self.tally = Tally(0)

    def put(self, event, **how):
        outputs = super().put(event, **how)
        self.tally.see(self.records[-1], outputs)
        return outputs

    @property
    def report(self) -> FlowReport:
        return self.tally.sums()["flow"].report("flow", 10)

    @property
    def trouble(self) -> Troubled:
        (run,) = self.report.troubled
        return run


@pytest.fixture
def log() -> Told:
    log = Told()
    log.start(chain(2, goal="a goal"))
    log.began("s0")
    return log


def stalled(log: Log, verdict: Verdict = Verdict.SILENT) -> None:
    log.put(
        StallSuspected(
            run_id="r", step="s0", epoch=1, verdict=verdict, events_offset=99,
            heartbeats_at_ms=log.now_ms, evidence="no heartbeat for 12 s",
        )
    )  # fmt: skip


def test_a_run_that_goes_well_is_in_no_trouble(log: Told) -> None:
    log.done("s0")
    log.began("s1")
    log.done("s1")
    report = log.report
    assert report.states == {RunState.SUCCEEDED: 1}
    assert report.troubled == ()
    assert (report.rework.rate, report.conflicts.rate, report.recovery.took.count) == (0, 0, 0)


def test_identity_a_report_of_an_attempt_that_lost_its_step(log: Told) -> None:
    failed(log, "s0", kind=FailureType.TRANSIENT, error_class="Busy")
    log.tick(5)
    log.began("s0", 2)
    log.done("s0", 1)
    assert log.trouble.missing is Missing.IDENTITY
    assert [each.missing for each in log.trouble.findings] == [Missing.NOTHING, Missing.IDENTITY]
    assert log.report.conflicts.superseded == 1


def test_identity_another_start_under_the_same_id(log: Told) -> None:
    log.start(chain(3))
    assert log.trouble.missing is Missing.IDENTITY
    assert "different_start" in log.trouble.findings[0].why


def test_version_facts_made_on_another_run_version(log: Told) -> None:
    log.put(
        InformationSupplied(
            run_id="r", information_id="i", ops=b"\x90", origin="t", expected_run_version=7
        )
    )
    assert log.trouble.missing is Missing.VERSION


def test_version_no_worker_of_this_flow_version(log: Told) -> None:
    log.done("s0")
    log.put(StepReleased(run_id="r", step="s1", epoch=1, reason="no_compatible_worker"))
    assert log.trouble.missing is Missing.VERSION
    assert log.report.recovery.open == 0, "nobody has lost an attempt"


def test_version_a_decision_on_what_has_moved_since(log: Told) -> None:
    package = asked(failed(log, "s0"))
    log.put(
        InformationSupplied(
            run_id="r", information_id="i", ops=b"\x91\x93\xa3set\x91\xa2f0\x01", origin="t"
        )
    )
    decide(log, package, "retry", package_digest=b"of another")
    assert Missing.VERSION in {each.missing for each in log.trouble.findings}


def test_goal_a_person_is_asked_about_a_step_without_one() -> None:
    log = Told()
    log.start(chain(1))
    log.began("s0")
    failed(log, "s0")
    assert log.trouble.missing is Missing.GOAL


def test_goal_a_person_decided_and_is_asked_about_the_same_again(log: Told) -> None:
    package = asked(failed(log, "s0"))
    log.now_ms += 4_000
    decide(log, package, "retry")
    log.began("s0", 2)
    failed(log, "s0", 2)
    assert log.trouble.missing is Missing.GOAL
    clarity = log.report.clarity
    assert (clarity.asked, clarity.again, clarity.open) == (2, 1, 1)
    assert clarity.took.mean_ms == 4_000


def test_inputs_a_field_that_is_not_there() -> None:
    log = Told()
    log.start(plan_of(step("s0", reads=("amount",))))
    assert log.trouble.missing is Missing.INPUTS
    assert log.trouble.findings[0].step == "s0"


@pytest.mark.parametrize("kind", [FailureType.MISSING_INFO, FailureType.INVALID])
def test_inputs_of_no_use_by_the_steps_own_word(log: Told, kind: FailureType) -> None:
    failed(log, "s0", kind=kind, missing_fields=("amount",))
    assert log.trouble.missing is Missing.INPUTS
    assert "amount" in log.trouble.findings[0].why


def test_inputs_a_plan_that_cannot_be_run() -> None:
    log = Told()
    log.start(plan_of(step("s0", queue="nowhere")))
    assert log.trouble.missing is Missing.INPUTS
    assert (log.trouble.state, log.report.states) == (None, {None: 1})


def test_return_an_attempt_that_fell_silent(log: Told) -> None:
    stalled(log)
    assert log.trouble.missing is Missing.RETURN
    assert "no heartbeat for 12 s" in log.trouble.findings[0].why
    log.now_ms += 2_500
    log.began("s0", 2)
    log.done("s0", 2)
    assert log.report.recovery.mean_ms == 2_500
    assert (log.report.rework.attempts, log.report.rework.steps) == (2, 1)


def test_return_a_result_that_the_context_cannot_take(log: Told) -> None:
    log.done("s0", ops=[["set", ["undeclared"], 1]])
    assert log.trouble.missing is Missing.RETURN


def test_return_a_failure_without_a_word(log: Told) -> None:
    log.put(StepFailed(run_id="r", step="s0", epoch=1, failure_type=FailureType.TRANSIENT))
    assert log.trouble.missing is Missing.RETURN


def test_return_a_person_who_never_answers(log: Told) -> None:
    log.policy(person_wait_ms=2_000)
    failed(log, "s0")
    log.tick(3)
    assert log.trouble.missing is Missing.RETURN
    assert (log.report.clarity.unanswered, log.report.recovery.given_up) == (1, 1)


def test_return_a_record_that_cannot_be_read(log: Told) -> None:
    log.put(Unreadable("bad_body", "cut short", run_id="r", kind="StepCompleted"))
    assert log.trouble.missing is Missing.RETURN


def test_nothing_a_failure_of_a_known_type_that_the_plan_routes(log: Told) -> None:
    failed(log, "s0", kind=FailureType.DEPENDENCY, dependency="bureau")
    assert log.trouble.missing is Missing.NOTHING


def test_nothing_a_worker_that_was_too_slow() -> None:
    log = Told()
    log.start(chain(1))
    log.now_ms += 31_000
    log.began("s0")
    assert [each.missing for each in log.trouble.findings] == [Missing.NOTHING]
    assert log.report.conflicts.refused == 1


def test_what_a_failure_says_of_itself_is_left_out(log: Told) -> None:
    failed(log, "s0", error_class="hunter2", message="hunter2", dependency="hunter2")
    assert "hunter2" not in str(msgspec.json.encode(log.trouble))


def test_a_report_ahead_of_its_start_is_told_with_its_words() -> None:
    log = Told()
    early = StepFailed(
        run_id="r", step="s0", epoch=0, attempt=1, failure_type=FailureType.INVALID
    )  # fmt: skip
    log.put(early)
    log.start(plan_of(step("s0", queue="")))
    assert log.trouble.missing is Missing.INPUTS
    assert log.report.conflicts.events == 2
    assert log.report.rework.attempts == 1


def test_a_question_and_the_runs_end_by_one_record_are_both_counted() -> None:
    log = Told()
    log.policy(reminder_first_ms=1_000)
    log.start(plan_of(step("s0", reads=("f",), goal="a goal")), context={"f": 1})
    log.began("s0")
    failed(log, "s0")
    ops = msgspec.msgpack.encode([["set", ["f"], 2]])
    log.put(InformationSupplied(run_id="r", information_id="i", ops=ops, origin="t"))
    log.now_ms += 2_000
    # What was shown has moved: the reminder asks again, and then the run is cancelled.
    log.put(RunCancelled(run_id="r", request_id="c"))
    clarity = log.report.clarity
    assert (clarity.asked, clarity.again, clarity.open, clarity.unanswered) == (2, 1, 0, 2)


def test_decided_and_asked_again_in_one_unit_leaves_the_new_question_open(log: Told) -> None:
    package = asked(failed(log, "s0"))
    log.policy(dispatch_bytes_max=1)
    log.now_ms += 1_000
    assert len(decide(log, package, "retry")) > 1
    clarity = log.report.clarity
    assert (clarity.asked, clarity.took.count, clarity.open) == (2, 1, 1)
    assert clarity.took.mean_ms == 1_000


def test_findings_of_a_run_are_bounded_and_counted(log: Told) -> None:
    for number in range(FINDINGS_MAX + 5):
        log.done("s0", 40 + number)
    assert len(log.trouble.findings) == FINDINGS_MAX
    assert log.trouble.more == 5


def test_what_comes_after_the_end_is_told_of_the_ended_run(log: Told) -> None:
    log.put(RunCancelled(run_id="r", request_id="c"))
    log.done("s0")
    assert (log.trouble.state, log.trouble.missing) == (RunState.CANCELLED, Missing.IDENTITY)


def test_a_refused_start_that_is_put_right_is_told_as_both(log: Told) -> None:
    bad = chain(1, queue="nowhere")
    log.put(RunStarted(run_id="x", flow="flow", flow_version=1, plan=bad, context=b"\x80"))
    log.start(chain(1), "x")
    assert log.report.states == {None: 1, RunState.RUNNING: 2}
    assert log.trouble.run_id == "x"
