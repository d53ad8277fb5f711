"""Silent and stuck: what absence means, and what it does not."""

import pytest
from tests.unit.liveness.partition_world import World

from dalsegno.schemas.control import Verdict
from dalsegno.streams.core.liveness import FixedDetector, LivenessSettings


def test_a_step_that_falls_silent_is_found_after_its_threshold_with_the_evidence() -> None:
    world = World()
    world.start("r")
    world.pass_ms(5_000, "r")
    world.pass_ms(10_000)
    assert world.said == []
    world.pass_ms(500)
    (verdict,) = world.said
    assert world.verdicts() == [("r", "s", 1, Verdict.SILENT)]
    assert (verdict.worker, verdict.incarnation, verdict.source) == ("w", 7, "engine-1")
    assert (verdict.threshold_ms, verdict.events_offset) == (10_000, world.events)
    assert 10_000 < verdict.elapsed_ms <= 10_500
    assert world.at_ms - 500 <= verdict.heartbeats_at_ms <= world.at_ms


def test_a_step_that_beats_is_left_alone_however_long_it_runs() -> None:
    world = World()
    world.start("r")
    world.pass_ms(3_600_000, "r")
    assert world.said == []


def test_a_step_that_never_beats_at_all_is_found() -> None:
    world = World()
    world.start("r")
    world.pass_ms(11_000)
    assert world.verdicts() == [("r", "s", 1, Verdict.SILENT)]


@pytest.mark.parametrize("heartbeat_ms", [0, -1])
def test_a_step_without_a_declared_interval_is_watched_by_the_default(heartbeat_ms: int) -> None:
    """R121: never silently unmonitored."""
    world = World()
    world.start("r", heartbeat_ms=heartbeat_ms)
    world.pass_ms(11_000)
    assert world.verdicts() == [("r", "s", 1, Verdict.SILENT)]


def test_regular_fast_beats_and_then_a_short_gap_are_no_stall() -> None:
    """R072."""
    world = World()
    world.start("r", heartbeat_ms=100)
    for _ in range(500):
        world.at_ms += 100
        world.beat("r")
        world.beat("r")
        world.judge()
    world.pass_ms(1_500)
    world.beat("r")
    world.judge()
    assert world.said == []


def test_a_silent_step_that_beats_again_is_well_and_found_again_when_it_falls_silent() -> None:
    world = World(LivenessSettings(repeat_ms=3_600_000))
    world.start("r")
    world.pass_ms(11_000)
    world.pass_ms(30_000, "r")
    assert len(world.said) == 1
    world.pass_ms(70_000)
    assert [v for *_, v in world.verdicts()] == [Verdict.SILENT] * 2


def test_a_verdict_is_said_again_after_growing_bounds_until_the_attempt_leaves() -> None:
    world = World()
    world.start("r")
    world.pass_ms(10_500)
    counts = []
    for ms in (5_000, 10_000, 20_000):
        world.pass_ms(ms)
        counts.append(len(world.said))
    assert counts == [2, 3, 4]
    world.end("r")
    world.pass_ms(200_000)
    assert len(world.said) == 4


def test_a_later_epoch_is_judged_on_its_own() -> None:
    world = World()
    world.start("r")
    world.pass_ms(11_000)
    world.start("r", epoch=2)
    world.pass_ms(9_000)
    world.beat("r", epoch=1)
    assert world.monitor.strays == 1
    world.pass_ms(2_000)
    assert world.verdicts() == [("r", "s", 1, Verdict.SILENT), ("r", "s", 2, Verdict.SILENT)]


def test_another_process_does_not_keep_an_attempt_alive() -> None:
    world = World()
    world.start("r", worker="w", incarnation=7)
    world.pass_ms(11_000, "r", incarnation=6)
    assert world.verdicts() == [("r", "s", 1, Verdict.SILENT)]


def test_a_service_without_the_sdk_beats_per_step_and_names_no_worker() -> None:
    world = World()
    world.start("r", epoch=0, queue="", worker="", incarnation=0)
    world.pass_ms(60_000, "r", epoch=0, worker="billing", incarnation=0)
    assert world.said == []
    world.pass_ms(11_000)
    assert world.verdicts() == [("r", "s", 0, Verdict.SILENT)]


def test_the_retry_of_a_service_without_handoffs_is_watched_from_its_own_start() -> None:
    world = World()
    world.start("r", epoch=0, queue="", worker="billing", incarnation=0)
    world.pass_ms(9_000)
    world.start("r", epoch=0, queue="", worker="billing", incarnation=0)
    world.pass_ms(9_000)
    assert world.said == []


def test_a_silence_of_another_type_of_step_teaches_nothing_about_this_one() -> None:
    """R098: long silences are learned per step type, and the ceiling still holds."""
    world = World(LivenessSettings(repeat_ms=3_600_000))
    declared_ms, minute_ms = 300_000, 60_000
    for n in range(20):
        world.start(f"good-{n}", step="long", queue="", heartbeat_ms=declared_ms)
        world.start("short", step="other", queue="", heartbeat_ms=5_000)
        world.pass_ms(26 * minute_ms, "short", step="other", every_ms=5_000)
        world.end(f"good-{n}", step="long")
        world.end("short", step="other")
    world.start("new", step="long", queue="", heartbeat_ms=declared_ms)
    world.start("short", step="other", queue="", heartbeat_ms=5_000)
    world.pass_ms(20 * minute_ms, "short", step="other", every_ms=5_000)
    assert world.said == []
    world.pass_ms(11 * minute_ms, "short", step="other", every_ms=5_000)
    assert world.verdicts() == [("new", "long", 1, Verdict.SILENT)]


def test_beats_without_progress_are_a_verdict_of_their_own() -> None:
    """R085: the last thing a dying worker does may be to beat."""
    world = World()
    for n in range(20):
        world.start(f"good-{n}")
        for progress in range(1, 6):
            world.pass_ms(4_000, f"good-{n}", progress=progress)
        world.end(f"good-{n}")
    world.start("r")
    world.pass_ms(4_000, "r", progress=1)
    world.pass_ms(27_000, "r", progress=1)
    assert world.said == []
    world.pass_ms(1_000, "r", progress=1)
    assert world.verdicts() == [("r", "s", 1, Verdict.STUCK)]
    assert world.said[0].threshold_ms == 30_000
    world.pass_ms(30_000, "r", progress=2)
    assert len(world.said) == 1


def test_progress_ends_being_stuck() -> None:
    world = World(LivenessSettings(repeat_ms=3_600_000))
    world.start("r", timeout_ms=100_000)
    world.pass_ms(91_000, "r")
    assert world.verdicts() == [("r", "s", 1, Verdict.STUCK)]
    world.pass_ms(89_000, "r", progress=1)
    assert len(world.said) == 1
    world.pass_ms(3_000, "r", progress=1)
    assert len(world.said) == 2


def test_what_is_silent_is_not_called_stuck_as_well() -> None:
    world = World(LivenessSettings(repeat_ms=3_600_000))
    world.start("r", timeout_ms=20_000)
    world.pass_ms(60_000)
    assert world.verdicts() == [("r", "s", 1, Verdict.SILENT)]


def test_the_plain_policy_serves_as_well() -> None:
    world = World(new_detector=lambda: FixedDetector(dead_intervals=20))
    world.start("r")
    world.pass_ms(20_000)
    assert world.said == []
    world.pass_ms(1_000)
    assert world.verdicts() == [("r", "s", 1, Verdict.SILENT)]


def test_what_was_learned_and_who_was_heard_of_stay_bounded() -> None:
    world = World(LivenessSettings(kinds_max=8, workers_max=8))
    for n in range(100):
        world.start("r", step=f"s{n}", worker=f"w{n}")
        world.beat("r", step=f"s{n}", worker=f"w{n}")
        world.end("r", step=f"s{n}")
    assert len(world.monitor._kinds) <= 8
    assert len(world.monitor._workers) <= 8


def test_short_steps_leave_no_heap_behind() -> None:
    world = World()
    world.canary()
    for n in range(20_000):
        world.start(f"r{n}")
        world.end(f"r{n}")
    assert len(world.monitor._silence._deadlines) <= 2_000
    assert len(world.monitor._watches.keys) == 1
