"""Fault points in a partition's fold: who is held, who goes, and what is said about it."""

import pytest
from tests.unit.core.log import (
    assert_restores,
    handoffs,
    plan_of,
    row,
    step,
    view,
)
from tests.unit.core.point_log import LEASE_MS, PointLog, reports

from dalsegno.schemas.control import (
    BreakerState,
    Dependency,
    Policy,
)
from dalsegno.schemas.events import FailureType, RunCancelled
from dalsegno.schemas.outputs import Outcome, RunState, StepState
from dalsegno.streams.core.partition import Partition


def test_in_good_times_nothing_is_said_and_nothing_waits() -> None:
    log = PointLog()
    assert len(log.runs(3, "pay")) == 3
    for number in range(3):
        log.began("s0", run_id=f"r{number}")
        log.done("s0", run_id=f"r{number}")
    assert reports(log.outputs) == []
    assert log.partition.next_log_deadline_ms is not None
    assert_restores(log)


def test_the_first_failure_is_reported_at_once_with_the_usual_span() -> None:
    log = PointLog()
    log.runs(5, "pay")
    for number in range(4):
        log.began("s0", run_id=f"r{number}")
        log.now_ms += 40
        log.done("s0", run_id=f"r{number}")
    (report,) = reports(log.fail("r4", retry_after_ms=700))
    assert (report.failures, report.in_a_row, report.baseline_ms) == (1, 1, 40)
    assert (report.fault_point, report.retry_after_ms) == ("pay", 700)
    assert report.last_error_class == "http_503"


def test_further_outcomes_come_in_one_report_per_interval() -> None:
    log = PointLog()
    log.runs(10, "pay")
    said = [report for n in range(10) for report in reports(log.fail(f"r{n}"))]
    assert [report.failures for report in said] == [1]
    (rest,) = reports(log.later(25))
    assert (rest.failures, rest.in_a_row) == (9, 9)
    assert reports(log.later(1_000)) == []


def test_a_success_in_between_is_said_too() -> None:
    log = PointLog()
    log.runs(3, "pay")
    log.fail("r0")
    log.began("s0", run_id="r1")
    log.now_ms += 60
    (report,) = reports(log.done("s0", run_id="r1"))
    assert (report.failures, report.successes, report.rtt_ms) == (0, 1, 60)


def test_failures_of_other_kinds_say_nothing_about_a_dependency() -> None:
    log = PointLog()
    log.runs(1, "pay")
    assert reports(log.fail("r0", failure_type=FailureType.TRANSIENT)) == []


def test_a_timeout_counts_against_what_the_step_depends_on() -> None:
    log = PointLog()
    log.runs(1, "pay")
    log.began("s0", run_id="r0")
    said = reports(log.tick(12))
    assert [(r.fault_point, r.failures, r.last_error_class) for r in said] == [
        ("pay", 1, "timeout")
    ]


def test_while_it_is_open_steps_are_held_and_their_number_is_said() -> None:
    log = PointLog()
    log.state()
    log.now_ms += 1_000
    assert log.runs(1, "pay") == []
    assert row(log, "s0", "r0").state is StepState.HELD
    assert (view(log, "r0").state, view(log, "r0").waiting_for) == (
        RunState.WAITING, "fault point",
    )  # fmt: skip
    assert reports(log.outputs)[-1].waiting == 1
    assert log.runs(40, "pay", first=1) == []
    log.later(1_000)
    assert reports(log.outputs)[-1].waiting == 41
    assert len(reports(log.outputs)) <= 3
    assert_restores(log)


def test_steps_that_do_not_depend_on_it_go_as_ever() -> None:
    log = PointLog()
    log.state()
    assert len(log.runs(2)) == 2
    assert len(log.runs(2, "mail", first=2)) == 2


def test_exactly_as_many_go_as_there_are_permits_in_their_order() -> None:
    log = PointLog()
    log.state()
    log.runs(9, "pay")
    assert [each.run_id for each in log.grant(3)] == ["r0", "r1", "r2"]
    assert log.grant(0) == []
    assert len(log.grant(100)) == 6
    assert log.runs(1, "pay", first=50) == []


def test_a_hundred_steps_at_the_very_moment_of_switching_and_three_are_let_go() -> None:
    log = PointLog()
    log.state()
    steps = (step(f"s{n}", depends_on=("pay",)) for n in range(100))
    log.start(plan_of(*steps))
    assert len(log.grant(3)) == 3
    waiting = [each for each in view(log).steps if each.state is StepState.HELD]
    assert len(waiting) == 97
    log.state(BreakerState.CLOSED, 1)
    assert handoffs(log.outputs)[3:] == []


def test_while_a_probe_takes_its_time_others_are_held_at_once_and_other_points_go_on() -> None:
    log = PointLog()
    log.state()
    log.runs(1, "pay")
    assert len(log.grant(1)) == 1
    log.began("s0", run_id="r0")
    for _ in range(30):
        log.tick()
        first = len(log.outputs)
        assert log.runs(1, "pay", first=1_000 + len(log.records)) == []
        assert len(log.runs(1, "mail", first=5_000 + len(log.records))) == 1
        assert len(log.outputs) > first


def test_a_handoff_must_be_started_within_the_lease() -> None:
    log = PointLog()
    log.state()
    log.runs(1, "pay")
    (given,) = log.grant(1, lease_ms=5_000)
    assert given.start_by_ms == log.now_ms + 5_000
    log.now_ms = given.start_by_ms
    log.began("s0", run_id="r0")
    assert log.outcomes == [Outcome.REFUSED]


def test_what_nobody_starts_within_the_lease_waits_again_without_blame() -> None:
    log = PointLog()
    log.state()
    log.runs(1, "pay")
    log.grant(1, lease_ms=3_000)
    log.tick(12)
    found = row(log, "s0", "r0")
    assert found.state is StepState.HELD
    assert (found.failures, found.infra_failures) == (0, 0)


def test_permits_that_nobody_needs_go_back_at_once() -> None:
    log = PointLog()
    log.state()
    log.runs(1, "pay")
    log.grant(5)
    log.now_ms += 25
    (report,) = reports(log.began("s0", run_id="r0"))
    assert (report.running, report.unspent, report.waiting) == (1, 0, 0)


def test_an_opening_voids_what_is_in_hand_and_older_attempts_say_nothing() -> None:
    log = PointLog()
    log.runs(3, "pay", "mail")
    log.state()
    log.state(point="mail")
    log.runs(1, "pay", "mail", first=3)
    log.grant(1)
    log.state()
    assert log.grant(1, "mail") == []
    assert reports(log.fail("r0")) == []
    log.later(1_000)
    assert all(r.failures == 0 for r in reports(log.outputs))


def test_older_quotas_are_void() -> None:
    log = PointLog()
    log.state()
    log.runs(1, "pay")
    log.number = 9
    log.state()
    log.number = 4
    assert log.grant(1) == []
    assert row(log, "s0", "r0").state is StepState.HELD


def test_healthy_again_lets_go_what_waits_and_forgets_the_point() -> None:
    log = PointLog()
    log.state()
    log.runs(4, "pay")
    assert len(handoffs(log.healthy())) == 4
    assert len(log.runs(1, "pay", first=9)) == 1
    assert_restores(log)


def test_a_step_with_two_dependencies_takes_both_permits_or_none() -> None:
    log = PointLog()
    for point in ("mail", "pay"):
        log.state(point=point)
    log.runs(1, "pay", "mail")
    assert log.grant(1, "mail") == []
    assert log.grant(1, "pay") != []


def test_one_of_two_dependencies_is_healthy() -> None:
    log = PointLog()
    log.state(point="mail")
    log.runs(2, "pay", "mail")
    assert len(log.grant(2, "mail")) == 2


def test_a_step_that_waits_for_one_point_leaves_the_permits_of_the_other_to_others() -> None:
    log = PointLog()
    for point in ("mail", "pay"):
        log.state(point=point)
    log.runs(1, "pay", "mail")
    log.runs(1, "mail", first=1)
    assert [each.run_id for each in log.grant(1, "mail")] == ["r1"]


def test_a_cancelled_run_waits_no_more() -> None:
    log = PointLog()
    log.state()
    log.runs(2, "pay")
    log.put(RunCancelled(run_id="r0", request_id="c", reason="no"))
    assert [each.run_id for each in log.grant(5)] == ["r1"]
    log.later(3_000)
    assert reports(log.outputs)[-1].waiting == 0
    assert_restores(log)


def test_an_attempt_that_ends_in_any_way_is_no_longer_out() -> None:
    log = PointLog()
    log.state()
    log.runs(3, "pay")
    log.grant(3)
    log.put(RunCancelled(run_id="r0", request_id="c", reason="no"))
    log.fail("r1", failure_type=FailureType.TRANSIENT)
    assert_restores(log)
    log.later(3_000)
    assert reports(log.outputs)[-1].running == 1


def test_permits_lapse_and_the_actor_hears_of_it() -> None:
    log = PointLog()
    for point in ("mail", "pay"):
        log.state(point=point)
    log.runs(1, "pay", "mail")
    log.grant(1, "mail")
    log.later(LEASE_MS)
    said = {r.fault_point: r.unspent for r in reports(log.outputs)}
    assert said["mail"] == 0
    assert log.grant(1, "pay") == []


def test_what_waits_is_said_again_and_again() -> None:
    log = PointLog()
    log.state()
    log.runs(1, "pay")
    due = log.partition.next_log_deadline_ms
    assert due is not None
    log.later(30_000)
    assert len(reports(log.tick(10))) in range(3, 6)


def test_failures_can_be_counted_by_class() -> None:
    log = PointLog()
    log.policy(dependencies=(Dependency(name="pay", by_class=True),))
    log.runs(2, "pay")
    (report,) = reports(log.fail("r0"))
    assert report.fault_point == "pay/http_503"
    log.state(point="pay/http_503")
    assert log.runs(1, "pay", first=5) == []
    assert len(log.grant(1, "pay/http_503")) == 1


def test_a_dependency_that_the_report_names_is_the_one() -> None:
    log = PointLog()
    log.runs(1, "pay", "mail")
    assert [r.fault_point for r in reports(log.fail("r0", dependency="mail"))] == ["mail"]


def test_a_dependency_that_is_named_and_not_declared_is_nobodys() -> None:
    log = PointLog()
    log.runs(1, "pay")
    assert reports(log.fail("r0", dependency="disk")) == []


def test_a_point_that_failed_and_was_not_opened_is_forgotten_after_a_while() -> None:
    log = PointLog()
    log.runs(1, "pay")
    log.fail("r0")
    assert log.partition._now.points.views
    log.later(10_000)
    assert log.partition._now.points.views == {}
    assert log.partition.next_report_ms is None


def test_a_point_whose_last_report_comes_after_its_watch_is_forgotten_with_it() -> None:
    log = PointLog()
    log.runs(3, "pay")
    log.fail("r0")
    log.began("s0", 1, "r1")
    log.began("s0", 1, "r2")
    log.later(9_995)
    log.done("s0", 1, "r1")
    log.done("s0", 1, "r2")
    [said] = reports(log.later(1_000))
    assert said.successes == 1
    assert log.partition.next_report_ms is None
    assert log.partition._now.points.views == {}


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_restored_partition_says_and_does_the_same(cut: int) -> None:
    def story(log: PointLog) -> None:
        log.runs(6, "pay")
        log.fail("r0")
        log.state()
        log.runs(6, "pay", "mail", first=6)
        log.grant(2)
        log.later(3_000)
        log.grant(4)
        log.fail("r6")
        log.later(2_000)
        log.healthy()

    whole = PointLog()
    story(whole)
    at = len(whole.records) * cut // 12
    first = Partition(0)
    for record in whole.records[:at]:
        first.apply(record)
    again = Partition.restore(0, first.parts().items())
    out = [made for record in whole.records[at:] for made in again.apply(record)]
    assert out == whole.outputs[len(whole.outputs) - len(out) :]
    assert again.digest() == whole.partition.digest()
    assert isinstance(again.policy, Policy)


def test_plans_with_several_steps_come_back_in_parallel() -> None:
    log = PointLog()
    log.state()
    log.start(plan_of(*(step(f"s{n}", depends_on=("pay",)) for n in range(4))))
    assert len(log.grant(3)) == 3
    assert len(log.grant(3)) == 1
