"""Freeze, look, release; the pace of a mass failure; limits: through the fold."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.core.log import (
    Log,
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

from dalsegno.schemas.control import RecoveryFrozen, RecoveryReleased, StallSuspected, Verdict
from dalsegno.schemas.events import FailureType, RunCancelled, RunPaused, RunResumed, StepFailed
from dalsegno.schemas.outputs import Outcome, StepState
from dalsegno.schemas.plan import RetryPolicy
from dalsegno.streams.core.recovery.pacing import QUIET_MS, WIDTH_FIRST

QUICK = RetryPolicy(initial_ms=10, max_ms=10, max_attempts=50, max_infra_attempts=50)


def freeze(log: Log, **scope: str) -> None:
    log.put(RecoveryFrozen(partition=0, number=log.partition.position, source="ops", **scope))


def release(log: Log, rate_per_s: int = 0, **scope: str) -> None:
    number = log.partition.position
    log.put(RecoveryReleased(partition=0, number=number, rate_per_s=rate_per_s, **scope))


def failed(log: Log, run_id: str, name: str = "s0", epoch: int = 1) -> None:
    kind = FailureType.TRANSIENT
    log.put(StepFailed(run_id=run_id, step=name, epoch=epoch, failure_type=kind))


def damaged(log: Log, runs: int, **fields: object) -> list[str]:
    """Runs of two steps whose first attempts have failed; their waits are over."""
    names = [f"run-{n}" for n in range(runs)]
    for run_id in names:
        log.start(chain(2, retry=QUICK, **fields), run_id)
        log.began("s0", run_id=run_id)
        failed(log, run_id)
    return names


def given(outputs: list[object]) -> list[tuple[str, str, int]]:
    return [(h.run_id, h.step, h.epoch) for h in handoffs(outputs)]  # type: ignore[arg-type]


def test_while_frozen_nothing_goes_for_recovery_and_first_attempts_do() -> None:
    log = Log()
    freeze(log)
    names = damaged(log, 3)
    assert given(log.tick(5)) == []
    assert [row(log, "s0", name).state for name in names] == [StepState.HELD] * 3
    assert view(log, names[0]).waiting_for == "freeze"
    assert given(log.start(chain(1), "fresh")) == [("fresh", "s0", 1)]
    assert_restores(log)


def test_a_release_lets_the_line_go_one_then_two_then_four_a_second() -> None:
    log = Log()
    freeze(log)
    damaged(log, 9)
    log.tick(2)
    before = len(log.outputs)
    release(log)
    batches = [len(handoffs(log.outputs[before:]))]
    batches += [len(handoffs(log.tick())) for _ in range(4)]
    assert batches == [1, 2, 4, 2, 0]
    assert_restores(log)
    log.start(chain(1, retry=QUICK), "later")
    log.began("s0", run_id="later")
    failed(log, "later")
    assert given(log.tick()) == [("later", "s0", 2)]


def test_a_release_keeps_to_its_rate_and_is_not_in_a_hurry_after_a_gap() -> None:
    log = Log()
    freeze(log)
    damaged(log, 12)
    log.tick(2)
    release(log, rate_per_s=2)
    log.now_ms += 3_600_000
    assert [len(handoffs(log.tick())) for _ in range(3)] == [2, 2, 2]


def test_what_becomes_due_during_a_release_joins_its_line() -> None:
    log = Log()
    freeze(log)
    damaged(log, 8)
    log.tick(2)
    release(log, rate_per_s=1)
    log.start(chain(1, retry=QUICK), "later")
    log.began("s0", run_id="later")
    failed(log, "later")
    assert len(handoffs(log.tick())) == 1
    assert row(log, "s0", "later").state in {StepState.HELD, StepState.DISPATCHED}
    assert [len(handoffs(log.tick())) for _ in range(3)] == [1, 1, 1]


def test_a_scope_holds_its_flow_and_its_dependency_only() -> None:
    log = Log()
    freeze(log, fault_point="payments/timeout")
    freeze(log, flow="other")
    (name,) = damaged(log, 1, depends_on=("payments",))
    log.start(chain(1, retry=QUICK), "free")
    log.began("s0", run_id="free")
    failed(log, "free")
    log.start(chain(1, retry=QUICK), "named", flow="other")
    log.began("s0", run_id="named")
    failed(log, "named")
    assert given(log.tick()) == [("free", "s0", 2)]
    release(log, flow="other")
    assert row(log, "s0", "named").state is StepState.DISPATCHED
    assert row(log, "s0", name).state is StepState.HELD
    release(log, fault_point="payments/timeout")
    assert row(log, "s0", name).state is StepState.DISPATCHED


def test_only_what_is_frozen_can_be_released() -> None:
    log = Log()
    release(log)
    assert log.outcomes == [Outcome.REFUSED]


def test_clocks_of_frozen_runs_stand_still_or_not_as_the_policy_says() -> None:
    for stops, waits_for in ((True, "freeze"), (False, "person")):
        log = Log()
        log.policy(freeze_stops_clocks=stops)
        freeze(log)
        log.start(chain(2, retry=QUICK), ttl_ms=30_000)
        log.began("s0")
        failed(log, "r")
        log.tick(60)
        assert view(log).waiting_for == waits_for


@pytest.mark.parametrize("how", ["cancel", "pause"])
def test_a_run_that_stops_leaves_its_line_or_its_turn_to_others(how: str) -> None:
    log = Log()
    freeze(log)
    first, second = damaged(log, 2)
    log.tick(2)
    if how == "cancel":
        log.put(RunCancelled(run_id=first, request_id="c"))
    else:
        log.put(RunPaused(run_id=first, request_id="p"))
    assert_restores(log)
    release(log)
    log.tick(2)
    assert row(log, "s0", second).epoch == 2
    if how == "pause":
        assert row(log, "s0", first).state is StepState.READY
        assert given(log.put(RunResumed(run_id=first, request_id="q"))) == [(first, "s0", 2)]


def lost_at_once(log: Log, runs: int) -> None:
    for n in range(runs):
        log.start(chain(1, retry=QUICK), f"run-{n:04}")
        log.began("s0", run_id=f"run-{n:04}")
    for n in range(runs):
        log.put(
            StallSuspected(
                run_id=f"run-{n:04}",
                step="s0",
                epoch=1,
                verdict=Verdict.SILENT,
                events_offset=log.partition.position,
                heartbeats_at_ms=log.now_ms,
            )
        )


def test_a_worker_pool_that_dies_comes_back_behind_a_width_that_doubles() -> None:
    log = Log()
    lost_at_once(log, 6 * WIDTH_FIRST)
    log.tick()
    out = [len([h for h in handoffs(log.outputs) if h.epoch == 2])]
    for _ in range(5):
        out.append(len(handoffs(log.tick())))
    assert out[0] <= 2 * WIDTH_FIRST
    assert sum(out) == 6 * WIDTH_FIRST
    assert max(out) <= 4 * WIDTH_FIRST
    assert_restores(log)


def test_what_completes_makes_room_at_once() -> None:
    log = Log()
    log.policy(recovery_width_max=WIDTH_FIRST)
    lost_at_once(log, 3 * WIDTH_FIRST)
    log.tick()
    ahead = [h.run_id for h in handoffs(log.outputs) if h.epoch == 2]
    assert len(ahead) == WIDTH_FIRST
    log.began("s0", epoch=2, run_id=ahead[0])
    assert len(handoffs(log.done("s0", epoch=2, run_id=ahead[0]))) == 1
    log.put(RunCancelled(run_id=ahead[1], request_id="c"))
    assert len([h for h in handoffs(log.outputs) if h.epoch == 2]) == WIDTH_FIRST + 2


def test_a_failure_after_a_quiet_time_begins_anew() -> None:
    log = Log()
    lost_at_once(log, 2)
    log.tick()
    for n in range(2):
        log.began("s0", epoch=2, run_id=f"run-{n:04}")
        log.done("s0", epoch=2, run_id=f"run-{n:04}")
    log.now_ms += QUIET_MS + 1_000
    for n in range(2 * WIDTH_FIRST):
        log.start(chain(1, retry=QUICK), f"next-{n}")
        log.began("s0", run_id=f"next-{n}")
        failed(log, f"next-{n}")
    before = len(log.outputs)
    log.now_ms += 20
    log.tick(0)
    log.tick()
    assert len([h for h in handoffs(log.outputs[before:]) if h.epoch == 2]) == WIDTH_FIRST


def test_transitions_say_which_plan_was_followed_and_how_it_turned_out() -> None:
    log = Log()
    log.start(chain(3, retry=QUICK))
    log.began("s0")
    log.done("s0")
    log.began("s1")
    failed(log, "r", "s1")
    begun = transitions(log.outputs)[-1].detail
    log.tick()
    log.began("s1", epoch=2)
    log.now_ms += 500
    log.done("s1", epoch=2)
    ended = transitions(log.outputs)[-1].detail
    assert "1 steps kept, 2 to do, predicted 2000 ms" in begun
    assert "whole after 1500 ms, predicted 2000 ms, 1 attempts lost" in ended
    assert begun.split(":")[0] == ended.split(":")[0]


def test_a_run_that_is_brought_back_too_often_goes_to_a_person() -> None:
    for field, reason in (
        ("run_recoveries_max", "recoveries_exhausted"),
        ("window_recoveries_max", "recoveries_too_frequent"),
    ):
        log = Log()
        log.policy(**{field: 3})
        log.start(chain(1, retry=QUICK))
        for epoch in range(1, 5):
            log.began("s0", epoch=epoch)
            failed(log, "r", epoch=epoch)
            log.tick()
        (asked,) = escalations(log.outputs)
        assert asked.reason == reason
        assert row(log, "s0").state is StepState.ESCALATED


def test_the_largest_rank_of_a_run_goes_first_and_the_shortest_run_before_it() -> None:
    log = Log()
    freeze(log)
    wide = plan_of(
        step("short", retry=QUICK, timeout_ms=1_000),
        step("long", retry=QUICK, timeout_ms=1_000),
        step("behind", needs=("long",), timeout_ms=90_000),
    )
    log.start(wide, "large")
    log.start(chain(1, retry=QUICK), "small")
    for run_id, name in (("large", "short"), ("large", "long"), ("small", "s0")):
        log.began(name, run_id=run_id)
        failed(log, run_id, name)
    log.tick(2)
    before = len(log.outputs)
    release(log)
    log.tick(3)
    went = [name for _, name, _ in given(log.outputs[before:])]
    # The first turn is the kept share's: the run that has waited longest for what it takes.
    assert went.index("long") < went.index("short")
    assert msgspec.json.encode(log.partition.numbers)


def test_of_three_stalled_runs_the_one_without_attempts_left_asks_and_the_others_go_on() -> None:
    log = Log()
    last = RetryPolicy(initial_ms=10, max_ms=10, max_attempts=9, max_infra_attempts=1)
    for run_id, retry in (("one", QUICK), ("two", last), ("three", QUICK)):
        log.start(chain(1, retry=retry), run_id)
        log.began("s0", run_id=run_id)
    for run_id in ("one", "two", "three"):
        log.put(
            StallSuspected(
                run_id=run_id,
                step="s0",
                epoch=1,
                verdict=Verdict.SILENT,
                events_offset=log.partition.position,
                heartbeats_at_ms=log.now_ms,
            )
        )
    log.tick()
    assert [row(log, "s0", run_id).state for run_id in ("one", "two", "three")] == [
        StepState.DISPATCHED,
        StepState.ESCALATED,
        StepState.DISPATCHED,
    ]
    (asked,) = escalations(log.outputs)
    assert (asked.run_id, asked.reason) == ("two", "infra_attempts_exhausted")


def test_a_worker_that_is_lost_uses_up_nothing_of_the_steps_own_budget() -> None:
    log = Log()
    once = RetryPolicy(initial_ms=10, max_ms=10, max_attempts=1, max_infra_attempts=3)
    log.start(chain(1, retry=once))
    log.began("s0")
    log.put(
        StallSuspected(
            run_id="r",
            step="s0",
            epoch=1,
            verdict=Verdict.SILENT,
            events_offset=log.partition.position,
            heartbeats_at_ms=log.now_ms,
        )
    )
    log.tick()
    found = row(log, "s0")
    assert (found.epoch, found.failures, found.infra_failures) == (2, 0, 1)
    log.began("s0", epoch=2)
    failed(log, "r", epoch=2)
    assert row(log, "s0").state is StepState.ESCALATED
    assert escalations(log.outputs)[0].reason == "attempts_exhausted"
