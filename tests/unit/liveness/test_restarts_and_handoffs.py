"""Replaced and lost: what a hello and a mark prove."""

import pytest
from tests.unit.liveness.partition_world import World

from dalsegno.schemas.control import Verdict
from dalsegno.streams.core.liveness import LivenessSettings
from dalsegno.streams.core.liveness.findings import AT_ONCE_MAX


def test_a_newer_incarnation_replaces_every_attempt_of_the_earlier_at_once() -> None:
    world = World()
    for n in range(3):
        world.start(f"r{n}")
    world.start("other", worker="w2")
    world.pass_ms(1_000, "r0", "r1", "r2")
    world.hello(12)
    assert [v.run_id for v in world.judge()] == ["r0", "r1", "r2"]
    assert {v.verdict for v in world.said} == {Verdict.REPLACED}
    assert {v.incarnation for v in world.said} == {7}
    assert "12" in world.said[0].evidence


def test_the_first_hello_in_the_home_partition_counts_by_its_offset() -> None:
    world = World()
    world.start("r")
    world.hello(-1, offset=41)
    world.hello(41)
    assert world.judge() != []
    world.end("r")
    world.start("r2", incarnation=41)
    world.judge()
    assert len(world.said) == 1


@pytest.mark.parametrize("incarnation", [7, 3])
def test_the_same_or_an_older_hello_replaces_nothing(incarnation: int) -> None:
    world = World()
    world.start("r")
    world.hello(7)
    world.hello(incarnation)
    assert world.judge() == []


def test_a_start_that_is_read_after_the_hello_is_replaced_too() -> None:
    world = World()
    world.hello(12)
    world.start("r")
    assert [v.verdict for v in world.judge()] == [Verdict.REPLACED]


def test_an_old_hello_that_comes_late_does_not_bring_its_incarnation_back() -> None:
    world = World()
    world.hello(12)
    world.hello(3)
    world.start("r")
    assert [v.verdict for v in world.judge()] == [Verdict.REPLACED]


def test_replaced_is_said_only_at_the_end_of_the_events() -> None:
    world = World()
    world.start("r")
    world.hello(12)
    assert world.judge(events_behind=1) == []
    world.end("r")
    assert world.judge() == []


def test_a_hello_from_another_host_waits_one_lease() -> None:
    world = World(LivenessSettings(lease_ms=5_000))
    world.hello(7, host="a")
    world.dispatch("h", offset=5)
    world.monitor.mark(world.mark(9))
    world.start("r")
    world.hello(12, host="b")
    world.pass_ms(4_500, "r")
    assert world.said == []
    world.pass_ms(500, "r")
    assert sorted(v for *_, v in world.verdicts()) == [Verdict.LOST, Verdict.REPLACED]


def test_verdicts_of_a_hello_are_repeated_while_the_attempt_stays() -> None:
    world = World()
    world.start("r")
    world.hello(12)
    world.pass_ms(4_000, "r")
    assert len(world.said) == 1
    world.pass_ms(2_000, "r")
    assert len(world.said) == 2
    world.start("r", epoch=2, incarnation=12)
    world.pass_ms(60_000, "r", epoch=2, incarnation=12)
    assert len(world.said) == 2


def test_what_an_earlier_incarnation_took_and_never_started_is_lost_at_once() -> None:
    world = World()
    world.dispatch("taken", offset=5)
    world.dispatch("not-taken", offset=6)
    world.start("running", incarnation=12)
    world.hello(12, world.mark(5))
    assert world.judge() != []
    assert world.verdicts() == [("taken", "s", 1, Verdict.LOST)]


def test_what_another_worker_took_before_is_not_lost_with_this_one() -> None:
    world = World()
    world.dispatch("theirs", offset=5)
    world.dispatch("ours", offset=8)
    world.monitor.mark(world.mark(5, worker="w2"))
    world.hello(12, world.mark(8))
    world.judge()
    assert world.verdicts() == [("ours", "s", 1, Verdict.LOST)]


def test_what_the_new_incarnation_took_itself_is_not_lost() -> None:
    world = World()
    world.dispatch("new", offset=8)
    world.monitor.mark(world.mark(8, incarnation=12))
    world.hello(12, world.mark(5))
    assert world.judge() == []


def test_marks_known_before_the_hello_and_in_any_order_give_the_same() -> None:
    for order in ("mark first", "hello first", "newer mark first"):
        world = World()
        world.dispatch("old", offset=5)
        world.dispatch("new", offset=8)
        if order == "mark first":
            world.monitor.mark(world.mark(5))
            world.hello(12)
            world.monitor.mark(world.mark(8, incarnation=12))
        elif order == "hello first":
            world.hello(12, world.mark(5))
            world.monitor.mark(world.mark(8, incarnation=12))
        else:
            world.monitor.mark(world.mark(8, incarnation=12))
            world.hello(12, world.mark(5))
        world.judge()
        assert world.verdicts() == [("old", "s", 1, Verdict.LOST)], order


def test_a_handoff_read_after_the_hello_is_lost_too() -> None:
    world = World()
    world.hello(12, world.mark(5))
    world.dispatch("taken", offset=5)
    world.judge()
    assert world.verdicts() == [("taken", "s", 1, Verdict.LOST)]


def test_marks_of_other_partitions_say_nothing_here() -> None:
    world = World()
    world.dispatch("r", offset=5)
    world.hello(12, world.mark(5, partition=4))
    assert world.judge() == []


def test_a_handoff_that_was_taken_is_lost_after_its_start_limit_and_margin() -> None:
    world = World()
    world.dispatch("r", offset=5)
    world.monitor.mark(world.mark(5))
    world.pass_ms(31_750)
    assert world.said == []
    world.pass_ms(500)
    assert world.verdicts() == [("r", "s", 1, Verdict.LOST)]
    assert world.said[0].threshold_ms == 30_000


def test_a_handoff_that_nobody_took_is_never_lost() -> None:
    """A queue without workers costs no attempts."""
    world = World()
    world.dispatch("r", offset=5)
    world.monitor.mark(world.mark(4))
    world.pass_ms(60_000)
    world.dispatch("r", epoch=2, offset=90)
    world.pass_ms(60_000)
    world.monitor.mark(world.mark(90))
    world.start("r", epoch=2)
    world.pass_ms(5_000, "r", epoch=2)
    assert world.said == []


def test_a_handoff_that_expired_after_it_was_taken_is_charged_to_its_own_epoch() -> None:
    world = World()
    world.dispatch("r", offset=5)
    world.monitor.mark(world.mark(5))
    world.pass_ms(31_000)
    world.dispatch("r", epoch=2, offset=90)
    world.judge()
    assert world.verdicts() == [("r", "s", 1, Verdict.LOST)]
    world.pass_ms(20_000)
    assert len(world.said) == 1


@pytest.mark.parametrize("taken_after_ms", [28_250, 30_000, 31_000])
def test_a_handoff_that_was_taken_too_late_to_be_started_is_not_lost(taken_after_ms: int) -> None:
    """A backlog: whoever takes it then rightly leaves it, and is as healthy as before."""
    world = World()
    world.dispatch("r", offset=5)
    world.pass_ms(taken_after_ms)
    world.monitor.mark(world.mark(5))
    world.pass_ms(5_000)
    world.dispatch("r", epoch=2, offset=90)
    world.judge()
    assert world.said == []


def test_a_mark_of_a_later_handoff_does_not_make_the_earlier_late() -> None:
    world = World()
    world.dispatch("r", offset=5)
    world.monitor.mark(world.mark(5))
    world.pass_ms(29_500)
    world.monitor.mark(world.mark(8))
    world.pass_ms(3_000)
    assert world.verdicts() == [("r", "s", 1, Verdict.LOST)]


def test_a_handoff_that_is_read_after_its_mark_was_taken_in_time_or_not_as_the_mark_was() -> None:
    for known_after_ms, lost in ((0, 1), (29_000, 0)):
        world = World()
        since_ms = world.at_ms
        world.pass_ms(known_after_ms)
        world.monitor.mark(world.mark(5))
        world.dispatch("r", offset=5, since_ms=since_ms, start_by_ms=since_ms + 30_000)
        world.pass_ms(33_000)
        assert len(world.said) == lost


def test_a_handoff_that_was_given_back_in_time_is_not_lost() -> None:
    world = World()
    world.dispatch("r", offset=5)
    world.monitor.mark(world.mark(5))
    world.pass_ms(3_000)
    world.dispatch("r", epoch=2, offset=90)
    world.pass_ms(20_000)
    assert world.said == []


def test_a_handoff_that_started_is_not_lost() -> None:
    world = World()
    world.dispatch("r", offset=5)
    world.monitor.mark(world.mark(5))
    world.start("r")
    world.pass_ms(60_000, "r")
    assert world.said == []


def test_marks_are_wanted_only_for_queues_where_a_handoff_waits() -> None:
    world = World()
    assert world.monitor.queues_to_read(world.at_ms) == set()
    world.dispatch("r", offset=5)
    assert world.monitor.queues_to_read(world.at_ms) == set()
    world.pass_ms(2_000)
    assert world.monitor.queues_to_read(world.at_ms) == {"default"}
    world.monitor.mark(world.mark(5))
    assert world.monitor.queues_to_read(world.at_ms) == set()


def test_a_queue_of_short_start_limits_is_read_in_time() -> None:
    world = World()
    world.dispatch("r", offset=5, start_by_ms=world.at_ms + 1_000)
    world.pass_ms(500)
    assert world.monitor.queues_to_read(world.at_ms) == {"default"}


def test_a_verdict_that_the_fold_passed_over_is_said_again_at_once_a_few_times() -> None:
    world = World(LivenessSettings(repeat_ms=60_000))
    world.start("r")
    world.hello(12)
    for again in range(1, 1 + AT_ONCE_MAX + 1):
        (verdict,) = world.judge()
        world.monitor.appended(verdict, world.events)
        assert world.judge() == []  # the fold has not come so far
        world.events += 1
        assert len(world.said) == again
    assert world.judge() == []
    world.pass_ms(59_000, "r")
    assert len(world.said) == AT_ONCE_MAX + 1
    world.pass_ms(8 * 60_000, "r")
    assert len(world.said) > AT_ONCE_MAX + 1


def test_a_verdict_whose_attempt_left_is_not_said_again() -> None:
    world = World()
    world.start("r")
    world.hello(12)
    (verdict,) = world.judge()
    world.monitor.appended(verdict, world.events)
    world.events += 1
    world.dispatch("r", epoch=2)
    assert world.judge() == []


def test_last_words_that_were_not_appended_are_said_again() -> None:
    world = World()
    world.dispatch("r", offset=5)
    world.monitor.mark(world.mark(5))
    world.at_ms += 31_000
    world.monitor.ask(world.at_ms)
    world.dispatch("r", epoch=2, offset=9)
    (verdict,) = world.judge()
    assert (verdict.verdict, verdict.epoch) == (Verdict.LOST, 1)
    world.monitor.not_appended(verdict)
    assert [(v.verdict, v.epoch) for v in world.judge()] == [(Verdict.LOST, 1)]
    assert world.judge() == []


def test_what_is_found_after_the_question_waits_for_the_next() -> None:
    """The ends that answer a question may be older than what was found since (P8)."""
    world = World()
    world.dispatch("r", offset=5)
    world.dispatch("other", offset=50)
    world.monitor.mark(world.mark(5))
    world.hello(8)
    world.monitor.ask(world.at_ms)
    reading = world.reading()
    world.monitor.mark(world.mark(60, incarnation=8))
    world.hello(9)
    said = world.monitor.caught_up(reading)
    assert [v.run_id for v in said] == ["r"]
    assert [v.run_id for v in world.judge()] == ["other"]
