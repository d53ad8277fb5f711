"""Services that drive themselves: nobody holds their steps, and what they report is heard."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.core.log import Log, assert_restores, plan_of, step
from tests.unit.core.point_log import PointLog, reports
from tests.unit.faultpoint.lab import T0, Lab, permits, states

from dalsegno.schemas.control import BreakerState
from dalsegno.schemas.events import FailureType, StepFailed
from dalsegno.streams.core.faultpoint.point import Phase

OWN = plan_of(step("call", queue="", depends_on=("pay",)))


class Own(PointLog):
    """A service with attempts of its own."""

    def __init__(self) -> None:
        super().__init__()
        for number in range(6):
            self.start(OWN, f"own{number}")

    def begins(self, number: int) -> None:
        self.began("call", 0, f"own{number}", attempt=1)
        self.now_ms += 50

    def fails(self, number: int) -> None:
        self.put(
            StepFailed(
                run_id=f"own{number}", step="call", epoch=0, attempt=1,
                failure_type=FailureType.DEPENDENCY, error_class="refused",
            )
        )  # fmt: skip

    def is_well(self, number: int) -> None:
        self.done("call", 0, f"own{number}", ops=[], attempt=1)

    def said(self, since: int) -> tuple[int, int]:
        """Failures and successes that were reported since so many outputs."""
        self.tick()
        found = reports(self.outputs[since:])
        assert_restores(self)
        return sum(each.failures for each in found), sum(each.successes for each in found)


def test_while_it_is_healthy_their_failures_count() -> None:
    log = Own()
    log.begins(0)
    log.fails(0)
    assert log.said(0) == (1, 0)


@pytest.mark.parametrize("state", [BreakerState.OPEN, BreakerState.HALF_OPEN])
def test_while_permits_are_needed_nobody_holds_them(state: BreakerState) -> None:
    log = Own()
    log.state(state)
    log.begins(0)
    assert log.partition.run("own0") is not None
    log.is_well(0)
    assert log.partition.run("own0").state == "succeeded"  # type: ignore[union-attr]


def test_while_it_ramps_failures_count_that_began_since_and_no_success() -> None:
    log = Own()
    for number in (0, 1):
        log.begins(number)
    log.state(BreakerState.OPEN)
    log.state(BreakerState.CLOSED, 1)
    for number in (2, 3, 4):
        log.now_ms += 10
        log.begins(number)
    since = len(log.outputs)
    log.fails(0)
    log.is_well(1)
    log.fails(2)
    log.is_well(3)
    log.fails(5)  # heard of only now: nobody knows when it began
    assert log.said(since) == (1, 0)


@pytest.mark.parametrize("someone_waits", [False, True])
def test_while_it_is_tried_their_outcomes_are_the_probes_where_nobody_waits(
    *, someone_waits: bool
) -> None:
    log = Own()
    log.state(BreakerState.OPEN)
    log.begins(0)
    if someone_waits:
        log.runs(1, "pay", first=50)
    log.state(BreakerState.HALF_OPEN)
    log.now_ms += 10
    for number in (1, 2):
        log.begins(number)
    since = len(log.outputs)
    log.is_well(0)
    assert log.said(since) == (0, 0)
    log.is_well(1)
    log.fails(2)
    assert log.said(since) == ((0, 0) if someone_waits else (1, 1))


def broken_with_nobody_waiting() -> Lab:
    lab = Lab()
    lab.report(failures=5)
    lab.report(0)
    return lab


def test_when_nobody_waits_everybody_hears_that_it_may_be_tried() -> None:
    lab = broken_with_nobody_waiting()
    tried = lab.until_due()
    assert states(tried) == [(n, "half_open", 1) for n in range(4)]
    assert permits(tried) == 0


def test_then_a_success_of_any_partition_closes_it_and_a_failure_opens_it_for_longer() -> None:
    lab = broken_with_nobody_waiting()
    before, pause_ms = lab.number(), lab.point.until_ms - T0 - lab.at_ms
    lab.until_due()
    assert lab.report(2, successes=1, rtt_ms=50, seen=before) == []
    assert lab.point.phase is Phase.HALF_OPEN
    opened = lab.report(2, failures=1)
    assert states(opened) == [(n, "open", 1) for n in range(4)]
    assert lab.point.until_ms - T0 - lab.at_ms > pause_ms
    lab.until_due()
    assert states(lab.report(3, successes=1, rtt_ms=50))[0] == (0, "closed", 1)
    assert lab.point.phase is Phase.RAMPING
    lab.until_due()
    assert lab.point.phase is Phase.HEALTHY


def test_a_preview_names_what_is_not_healthy() -> None:
    log = PointLog(Log().partition)
    log.state(BreakerState.OPEN)
    log.state(BreakerState.CLOSED, 7, "mail")
    log.state(BreakerState.CLOSED, 0, "scan")
    log.runs(3, "pay")
    shown = [msgspec.structs.astuple(point)[:5] for point in log.partition.previews.points()]
    assert shown == [("mail", "mail", "closed", 7, 0), ("pay", "pay", "open", 1, 3)]


def test_an_attempt_that_is_heard_of_only_at_its_end_teaches_no_duration() -> None:
    log = Own()
    log.is_well(0)
    log.begins(1)
    log.is_well(1)
    now = log.partition._now
    assert now.recovery.estimates.learned_ms("flow", "call") == 52  # the class of 50
    assert now.points.spans["pay"].usual_ms == 50
