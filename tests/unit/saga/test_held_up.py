"""Sagas that something holds up: an outage, a freeze, a pause. They end by no clock, and wait for
somebody.
"""

from __future__ import annotations

from tests.unit.core.log import (
    Log,
    assert_restores,
    escalations,
    handoffs,
    plan_of,
    row,
    step,
    transitions,
    view,
)
from tests.unit.people.asking import decide
from tests.unit.recovery.test_freezing import freeze
from tests.unit.saga.orders import did, failed, order, undo

from dalsegno.schemas.control import BreakerState, FaultPointChanged
from dalsegno.schemas.outputs import RunState


def held_by_an_outage() -> Log:
    """Compensation `ua` waits for the bank, which is down."""
    log = Log()
    plan = plan_of(
        step("a", compensate="ua"), step("b", needs=("a",)), undo("ua", depends_on=("bank",))
    )
    log.start(plan, ttl_ms=3_600_000)
    did(log, "a")
    log.put(
        FaultPointChanged(
            partition=0, number=1, fault_point="bank", state=BreakerState.OPEN, window=0
        )
    )
    log.began("b")
    (package,) = escalations(failed(log, "b"))
    assert handoffs(decide(log, package, "compensate")) == []
    assert (view(log).waiting_for, row(log, "ua").held_by) == ("fault point", "point:bank")
    return log


def test_an_outage_that_outlasts_the_time_to_live_puts_a_compensation_to_a_person() -> None:
    log = held_by_an_outage()
    assert log.partition.previews.unowned("r") == []
    log.now_ms += 3_500_000
    assert escalations(log.tick()) == []
    log.now_ms += 100_000
    (package,) = escalations(log.tick())
    assert (package.step, package.reason, package.dependency) == (
        "ua", "outage_outlasted_ttl", "bank",
    )  # fmt: skip
    assert "time to live is over" in package.message
    assert log.partition.previews.unowned("r") == []
    assert_restores(log)
    decide(log, package, "skip")
    assert view(log).state is RunState.COMPENSATED


def test_a_saga_that_nothing_holds_is_only_looked_at_and_leaves_no_record_of_it() -> None:
    log = Log()
    log.start(order(), ttl_ms=600_000)
    did(log, "reserve", "reservation")
    log.now_ms += 600_000
    (handoff,) = handoffs(log.tick())
    log.began("release", epoch=handoff.epoch)
    log.now_ms += 610_000
    out = log.tick()
    assert escalations(out) == []
    assert transitions(out) == []
    assert view(log).state is RunState.COMPENSATING


def test_what_a_freeze_holds_is_not_put_to_a_person() -> None:
    log = Log()
    plan = plan_of(step("a", compensate="ua"), step("b", needs=("a",)), undo("ua"))
    log.start(plan, ttl_ms=3_600_000)
    did(log, "a")
    log.began("b")
    (package,) = escalations(failed(log, "b"))
    freeze(log)
    decide(log, package, "compensate")
    assert view(log).waiting_for == "freeze"
    log.now_ms += 4_000_000
    assert escalations(log.tick()) == []
    assert log.partition.previews.unowned("r") == []
