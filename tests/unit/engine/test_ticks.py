"""When ticks are appended; the clock is moved by hand."""

from __future__ import annotations

from dataclasses import dataclass

from dalsegno.streams.engine.ticks import RUNNING_INTERVAL_S, TickPlan


@dataclass
class Fold:
    needs_tick: bool = False
    next_log_deadline_ms: int | None = None
    next_report_ms: int | None = None
    log_ms: int = 0


def anchored(at_ms: int = 1_000_000, now_s: float = 100.0) -> TickPlan:
    plan = TickPlan()
    plan.sent(now_s)
    plan.appended(at_ms, now_s)
    return plan


def test_the_first_tick_comes_on_assignment_once_caught_up() -> None:
    plan = TickPlan()
    assert not plan.due(Fold(), behind_s=5.0, now_s=0.0)
    assert plan.due(Fold(), behind_s=0.0, now_s=0.0)
    plan.sent(0.0)
    assert not plan.due(Fold(), behind_s=0.0, now_s=9.0)


def test_one_each_second_while_a_step_runs_and_none_while_behind() -> None:
    plan, fold = anchored(), Fold(needs_tick=True)
    assert not plan.due(fold, 0.0, 100.0 + RUNNING_INTERVAL_S - 0.1)
    assert plan.due(fold, 0.0, 100.0 + RUNNING_INTERVAL_S)
    assert not plan.due(fold, 1.0, 100.0 + RUNNING_INTERVAL_S)


def test_when_nothing_runs_only_a_due_deadline_brings_a_tick() -> None:
    plan = anchored(at_ms=1_000_000, now_s=100.0)
    assert not plan.due(Fold(), 0.0, 500.0)
    assert not plan.due(Fold(next_log_deadline_ms=1_005_000), 0.0, 104.9)
    assert plan.due(Fold(next_log_deadline_ms=1_005_000), 0.0, 105.0)


def test_a_tick_that_fell_short_is_repeated_no_sooner_than_the_difference() -> None:
    plan, fold = anchored(1_000_000, 100.0), Fold(next_log_deadline_ms=1_005_000)
    plan.sent(105.0)
    plan.appended(1_003_500, 105.0)  # the new leader's clock is 1.5 s behind
    assert not plan.due(fold, 0.0, 106.4)
    assert plan.due(fold, 0.0, 106.5)


def test_records_ahead_of_the_anchor_move_it_and_older_ones_do_not() -> None:
    plan = anchored(1_000_000, 100.0)
    plan.observed(999_000, 101.0)
    assert plan.broker_ms(101.0) == 1_001_000
    plan.observed(1_003_000, 101.0)
    assert plan.broker_ms(102.0) == 1_004_000


def test_a_failed_append_is_tried_again_after_a_while() -> None:
    plan = TickPlan()
    plan.sent(0.0)
    plan.failed(0.0)
    assert not plan.due(Fold(), 0.0, 0.5)
    assert plan.due(Fold(), 0.0, 1.0)


def test_numbers_grow_over_owners_that_read_each_others_ticks() -> None:
    first, used, log = TickPlan(), [], 0
    for _ in range(3):  # three ticks before any of them is read back
        used.append(first.number(position=0))
        first.appended(1_000_000, 0.0)
        log += 1
    assert used == [0, 1, 2]
    second = TickPlan()
    assert second.number(position=log) > max(used)


def test_ticks_that_could_not_be_appended_use_up_no_numbers() -> None:
    first = TickPlan()
    for _ in range(100):
        first.number(position=10)
        first.failed(0.0)
    written = first.number(position=10)
    first.appended(1_000_000, 0.0)
    # The next owner has read that tick, at offset 10: the fold has to take its ticks.
    assert TickPlan().number(position=11) > written


def test_a_report_that_is_due_does_not_wait_for_the_next_second() -> None:
    plan = anchored(1_000_000, 100.0)
    fold = Fold(needs_tick=True, next_report_ms=1_000_300)
    plan.sent(100.0)
    plan.appended(1_000_000, 100.0)
    assert not plan.due(fold, 0.0, 100.2)
    assert plan.due(fold, 0.0, 100.4)
