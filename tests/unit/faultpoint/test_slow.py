"""A dependency that becomes slow and never fails: who notices, who does not, and what follows."""

from __future__ import annotations

from random import Random

import pytest
from tests.unit.core.log import assert_restores, chain, handoffs, row
from tests.unit.core.point_log import PointLog, reports
from tests.unit.faultpoint.lab import Lab, permits, states

from dalsegno.schemas.control import BreakerState
from dalsegno.schemas.outputs import StepState
from dalsegno.streams.core.actions import Output
from dalsegno.streams.core.faultpoint import slowness
from dalsegno.streams.core.faultpoint.point import Phase
from dalsegno.streams.core.faultpoint.settings import DEFAULTS
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.recovery.estimates import SETTLED

USUAL_MS, SLOW_MS = 50, 600


class Work(PointLog):
    """Runs of one step that depends on `pay`; some are out at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.number_of_runs = 0

    def serve(self, spans_ms: list[int]) -> list[Output]:
        """So many attempts begin now; each ends when its span is over."""
        out: list[Output] = []
        began_ms, first = self.now_ms, self.number_of_runs
        self.number_of_runs += len(spans_ms)
        for number in range(first, self.number_of_runs):
            out += self.start(chain(1, depends_on=("pay",)), f"r{number}")
            out += self.began("s0", run_id=f"r{number}")
        numbers = range(first, self.number_of_runs)
        for span_ms, number in sorted(zip(spans_ms, numbers, strict=True)):
            self.now_ms = max(self.now_ms, began_ms + span_ms)
            out += self.done("s0", run_id=f"r{number}")
        return out

    def one_by_one(self, spans_ms: list[int]) -> list[Output]:
        """Each begins when the one before has ended."""
        return [output for span_ms in spans_ms for output in self.serve([span_ms])]

    def later_reports(self, out: list[Output]) -> list[int]:
        """What was said of slow attempts in these outputs, and just after."""
        self.now_ms += 100
        return [report.slow for report in reports(out + self.tick())]


def learned() -> Work:
    work = Work()
    assert reports(work.one_by_one([USUAL_MS] * SETTLED)) == []
    return work


def test_attempts_that_are_slow_in_a_row_are_reported_once() -> None:
    work = learned()
    before = work.one_by_one([SLOW_MS] * (slowness.STREAK - 1))
    assert work.later_reports(before) == []
    said = work.one_by_one([SLOW_MS])
    assert work.later_reports(said) == [slowness.STREAK]
    assert_restores(work)


def test_one_that_is_not_slow_begins_the_count_again() -> None:
    work = learned()
    for _ in range(5):
        out = work.one_by_one([SLOW_MS] * (slowness.STREAK - 1) + [USUAL_MS])
        assert work.later_reports(out) == []


def test_what_stood_still_once_with_all_that_was_out_is_no_slow_dependency() -> None:
    work = learned()
    assert work.later_reports(work.serve([5_000] * 60)) == []
    assert work.later_reports(work.one_by_one([USUAL_MS] * 5)) == []


def test_many_slow_attempts_at_once_do_not_teach_that_this_is_usual() -> None:
    work = learned()
    out = work.serve([SLOW_MS] * 300) + work.serve([SLOW_MS + 100] * slowness.AFTER)
    assert work.later_reports(out) == [300 + slowness.AFTER]


def test_what_is_slow_for_long_becomes_usual() -> None:
    work = learned()
    said = work.later_reports(work.one_by_one([SLOW_MS] * 200))
    assert 0 < sum(said) < 100
    assert work.later_reports(work.one_by_one([SLOW_MS] * 100)) == []


def test_a_step_that_is_hardly_known_is_never_slow() -> None:
    work = Work()
    work.one_by_one([USUAL_MS] * (SETTLED - 1))
    assert work.later_reports(work.one_by_one([SLOW_MS] * 8)) == []


@pytest.mark.parametrize("seed", range(3))
def test_work_whose_durations_vary_widely_is_not_called_slow(seed: int) -> None:
    rng, work = Random(seed), Work()
    for _ in range(60):
        out = work.serve([int(rng.lognormvariate(7, 1.2)) + 1 for _ in range(20)])
        assert work.later_reports(out) == []


def test_no_step_of_a_type_that_takes_longer_makes_its_dependency_slow() -> None:
    work = learned()
    for number in range(40):
        work.start(chain(2, depends_on=("pay",)), f"long{number}")
        work.began("s0", run_id=f"long{number}")
        work.now_ms += USUAL_MS
        work.done("s0", run_id=f"long{number}")
    out: list[Output] = []
    for number in range(40):
        out += work.began("s1", run_id=f"long{number}")
        work.now_ms += 20 * USUAL_MS
        out += work.done("s1", run_id=f"long{number}")
    assert work.later_reports(out) == []


def test_a_restore_in_the_middle_of_a_streak_changes_nothing() -> None:
    work = learned()
    work.one_by_one([SLOW_MS] * (slowness.STREAK // 2))
    work.partition = Partition.restore(0, work.partition.parts().items())
    said = work.one_by_one([SLOW_MS] * (slowness.STREAK - slowness.STREAK // 2))
    assert work.later_reports(said) == [slowness.STREAK]


def test_from_then_on_its_steps_need_permits_and_a_streak_ends() -> None:
    work = learned()
    work.one_by_one([SLOW_MS] * (slowness.STREAK - 1))
    work.state(BreakerState.CLOSED, 1)
    work.start(chain(1, depends_on=("pay",)), "next")
    assert row(work, "s0", "next").state is StepState.HELD
    assert len(work.grant(1)) == 1
    work.healthy()
    assert work.later_reports(work.one_by_one([SLOW_MS])) == []
    assert handoffs(work.start(chain(1, depends_on=("pay",)), "free")) != []


def test_the_actor_begins_with_a_window_of_one_and_ends_when_demand_is_met() -> None:
    lab = Lab()
    told = lab.report(slow=slowness.STREAK)
    assert states(told) == [(n, "closed", 1) for n in range(4)]
    assert lab.point.reason == "12 attempts in a row were slow"
    assert permits(lab.report(waiting=100)) == 1
    assert permits(lab.report(1, waiting=100)) == 0
    lab.report(successes=1, rtt_ms=SLOW_MS, waiting=1)
    assert lab.point.size == 2
    lab.report(successes=1, rtt_ms=SLOW_MS)
    lab.report(1)
    lab.until_due()
    assert lab.point.phase is Phase.HEALTHY


def test_what_was_slow_before_it_was_healthy_again_says_nothing() -> None:
    lab = Lab()
    lab.report(slow=slowness.STREAK)
    before = lab.number()
    lab.wait(DEFAULTS.calm_ms)
    assert lab.point.phase is Phase.HEALTHY
    assert lab.report(2, slow=slowness.STREAK, seen=before) == []


def test_the_dependency_that_was_well_longest_ago_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slowness, "SPANS_MAX", 2)
    log = PointLog()
    for number, name in enumerate(("a", "b", "a", "c")):
        log.start(chain(1, depends_on=(name,)), f"r{number}")
        log.began("s0", run_id=f"r{number}")
        log.now_ms += USUAL_MS
        log.done("s0", run_id=f"r{number}")
    assert list(log.partition._now.points.spans) == ["a", "c"]
    assert_restores(log)
