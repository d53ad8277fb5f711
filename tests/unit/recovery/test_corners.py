"""Corners of recovery, each of which was wrong once."""

from __future__ import annotations

import pytest
from tests.unit.core.log import Log, assert_restores, handoffs, plan_of, step, view
from tests.unit.core.point_log import PointLog
from tests.unit.core.test_quarantine import broken
from tests.unit.people.asking import asked, decide
from tests.unit.people.asking import failed as fails
from tests.unit.recovery.test_freezing import QUICK, failed, freeze, release
from tests.unit.recovery.test_giving_up import SLOW, chain
from tests.unit.saga.orders import ONCE, TWICE, intend, undo

from dalsegno.schemas.events import FailureType, StepFailed
from dalsegno.schemas.outputs import Outcome, RunState
from dalsegno.schemas.plan import OnFailure


def test_a_quarantined_run_does_not_come_back_when_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log()
    log.start(chain(2, retry=SLOW, depends_on=("bank",)), ttl_ms=60_000)
    log.began("s0")
    kind = FailureType.DEPENDENCY
    log.put(StepFailed(run_id="r", step="s0", epoch=1, failure_type=kind, dependency="bank"))
    broken(monkeypatch, log)
    assert view(log).state is RunState.QUARANTINED
    log.now_ms += 61_000
    log.tick()
    assert view(log).state is RunState.EXPIRED


def test_a_run_waits_for_a_freeze_only_while_a_step_of_it_stands_there() -> None:
    log = PointLog()
    log.state(point="bank")
    x, y = step("x", depends_on=("bank",)), step("y", retry=QUICK)
    log.start(plan_of(x, y, step("z", needs=("x", "y"))), ttl_ms=3_600_000)
    freeze(log)
    log.began("y")
    failed(log, "r", "y")
    log.tick()
    assert view(log).waiting_for == "freeze"
    release(log)
    log.tick(3)
    log.began("y", epoch=2)
    log.done("y", epoch=2, ops=[])
    assert view(log).waiting_for == "fault point"
    assert_restores(log)


def test_who_permits_a_retry_permits_no_effect_that_comes_after() -> None:
    log = Log()
    log.start(plan_of(step("a", unknown="person", retry=TWICE)))
    log.began("a")
    decide(log, asked(fails(log, "a")), "retry")
    log.began("a", 2)
    intend(log, "a", "pay", 2)
    failed(log, "r", "a", epoch=2)
    out = log.tick(2)
    assert handoffs(out) == []
    assert asked(out).reason == "unknown_effect"
    decide(log, asked(out), "retry")
    assert intended_again(log, epoch=3) is Outcome.APPLIED


def intended_again(log: Log, epoch: int) -> Outcome:
    log.began("a", epoch)
    intend(log, "a", "pay", epoch)
    (outcome,) = log.outcomes
    return outcome


def test_compensations_go_at_the_pace_of_recovery_from_their_first_attempt_on() -> None:
    log = Log()
    log.policy(recovery_width_max=1)
    back = undo("ua")
    plan = plan_of(
        step("a", compensate="ua"),
        step("b", needs=("a",), retry=ONCE),
        back,
        on_failure=OnFailure.COMPENSATE,
    )
    names = [f"run-{number}" for number in range(5)]
    out = []
    for run_id in names:
        log.start(plan, run_id)
        log.began("a", run_id=run_id)
        log.done("a", run_id=run_id, ops=[])
        log.began("b", run_id=run_id)
        kind = FailureType.PERMANENT
        out += log.put(StepFailed(run_id=run_id, step="b", epoch=1, failure_type=kind))
    for count in range(1, len(names) + 1):
        given = [handoff.run_id for handoff in handoffs(out)]
        assert (len(given), log.partition._now.recovery.pace.in_flight) == (1, 1)
        waiting = [name for name in names if view(log, name).state is RunState.COMPENSATING]
        assert len(waiting) == len(names) - count + 1
        for name in waiting:
            assert log.partition.previews.unowned(name) == []
        assert_restores(log)
        log.began("ua", run_id=given[0])
        out = log.done("ua", run_id=given[0], ops=[])
    assert log.partition._now.recovery.pace.in_flight == 0
    assert handoffs(out) == []


@pytest.mark.parametrize("line", ["freeze", "fault point"])
def test_what_was_held_when_its_run_was_put_aside_does_not_wait_for_what_is_over(
    monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    log = PointLog()
    log.start(plan_of(step("a", depends_on=("pay",), retry=QUICK)))
    log.began("a")
    if line == "freeze":
        freeze(log)
    else:
        log.state()
    failed(log, "r", "a")
    log.tick(3)
    assert view(log).waiting_for == line
    package = asked(broken(monkeypatch, log))
    if line == "freeze":
        release(log)
        log.tick()
    else:
        log.healthy()
    decide(log, package, "retry")
    given = [handoff.epoch for handoff in handoffs(log.outputs)]
    assert given == [1, 2]
    assert_restores(log)
