"""Permits in the fold: who spends them, what they report, and that a restore changes none."""

from __future__ import annotations

from tests.unit.core.log import assert_restores, handoffs, plan_of, step, view
from tests.unit.core.point_log import PointLog, reports
from tests.unit.saga.orders import ONCE, failed

from dalsegno.schemas.control import BreakerState
from dalsegno.schemas.outputs import RunState
from dalsegno.schemas.plan import OnFailure, StepRole


def test_a_restore_does_not_share_a_permit_that_was_spent_alone() -> None:
    log = PointLog()
    log.state(BreakerState.CLOSED, 5, "bank")
    log.start(plan_of(step("a", depends_on=("bank", "post"))))
    assert [h.step for h in log.grant(1, "bank")] == ["a"]
    log.state(BreakerState.OPEN, 1, "post")
    assert_restores(log)


def test_a_compensation_that_goes_well_is_a_success_of_its_fault_point() -> None:
    log = PointLog()
    log.start(
        plan_of(
            step("a", compensate="ua"),
            step("b", needs=("a",), retry=ONCE),
            step("ua", role=StepRole.COMPENSATION, depends_on=("bank",)),
            on_failure=OnFailure.COMPENSATE,
        )
    )
    log.began("a")
    log.done("a", ops=[])
    log.state(BreakerState.CLOSED, 5, "bank")
    log.began("b")
    failed(log, "b")
    assert [h.step for h in log.grant(1, "bank")] == ["ua"]
    log.began("ua")
    out = log.done("ua", ops=[]) + log.tick(12)
    assert view(log).state is RunState.COMPENSATED
    assert sum(report.successes for report in reports(out)) == 1


def test_a_permit_whose_lease_is_over_is_not_spent() -> None:
    log = PointLog()
    log.state(BreakerState.CLOSED, 5, "bank")
    log.state(BreakerState.CLOSED, 5, "post")
    log.start(plan_of(step("a", depends_on=("bank", "post"))))
    assert log.grant(1, "bank", lease_ms=10_000) == []
    log.now_ms += 10_500
    assert log.grant(1, "post", lease_ms=10_000) == []
    assert_restores(log)
    (given,) = log.grant(1, "bank")
    assert given.start_by_ms > log.now_ms
    assert handoffs(log.outputs) == [given]
