"""No verdict on evidence that the monitor has not finished reading, nor by another clock."""

import random

from tests.unit.liveness.partition_world import PARTITION, World

from dalsegno.schemas.control import Verdict
from dalsegno.schemas.liveness import Canary
from dalsegno.streams.core.liveness import LivenessSettings

MINUTE_MS = 60_000


def test_a_frozen_monitor_reads_its_backlog_before_it_says_anything() -> None:
    """R002: 30 s behind, 50 live runs that beat every 2 s, threshold 10 s."""
    world = World()
    runs = [f"r{n}" for n in range(50)]
    for run in runs:
        world.start(run, heartbeat_ms=2_000)
    world.pass_ms(10_000, *runs, every_ms=2_000)
    backlog = [world.at_ms + ms for ms in range(0, 30_000, 2_000)]
    world.at_ms += 30_000
    late_ms, world.heartbeats = world.at_ms, world.heartbeats + len(backlog)
    for read, at_ms in enumerate(backlog):
        world.at_ms = at_ms
        world.beat(*runs)
        world.heartbeats -= 1
        world.at_ms = late_ms
        assert world.judge(heartbeats_behind=len(backlog) - read - 1) == []
    world.pass_ms(30_000, *runs, every_ms=2_000)
    assert world.said == []


def test_a_step_that_completed_is_not_judged_before_the_completion_is_read() -> None:
    world = World()
    world.start("r")
    world.pass_ms(2_000, "r")
    for _ in range(100):
        world.at_ms += 250
        world.canary()
        assert world.judge(events_behind=1) == []
    world.end("r")
    world.pass_ms(30_000)
    assert world.said == []


def test_only_the_moment_that_was_asked_about_is_judged() -> None:
    """What falls due after the ends were asked for may rest on events that are not read yet."""
    world = World()
    world.start("r")
    world.monitor.ask(world.at_ms)
    reading = world.reading()
    for _ in range(60):
        world.at_ms += 250
        world.canary()
    assert world.monitor.caught_up(reading) == []
    assert world.monitor.caught_up(world.reading()) == []
    assert world.judge() != []


def test_a_monitor_that_takes_over_judges_what_it_reads_back() -> None:
    """R069: stored beats are old; live steps stay untouched, dead ones come at a bounded rate."""
    world = World(LivenessSettings(verdicts_per_s=50, repeat_ms=3_600_000))
    live = [f"live-{n}" for n in range(1_000)]
    dead = [f"dead-{n}" for n in range(1_000)]
    since_ms = world.at_ms - 20 * MINUTE_MS
    for run in live + dead:
        world.start(run, since_ms=since_ms)
    assert world.judge() == []
    for _ in range(100):
        world.at_ms += 250
        world.canary()
        if world.at_ms % 1_000 == 0:
            world.beat(*live)
        before = len(world.said)
        world.judge()
        assert len(world.said) - before <= 50
    assert len(world.said) > 50
    world.pass_ms(30_000, *live)
    assert {v.run_id for v in world.said} == set(dead)


def test_a_step_that_started_ahead_of_the_heartbeats_read_so_far_has_its_whole_threshold() -> None:
    world = World()
    world.canary()
    world.at_ms += 60_000
    world.start("r")
    started_ms = world.at_ms
    world.at_ms -= 59_750
    while world.at_ms < started_ms + 5_000:
        world.canary()
        world.judge()
        world.at_ms += 250
    assert world.said == []
    world.pass_ms(6_000)
    assert world.verdicts() == [("r", "s", 1, Verdict.SILENT)]


def test_a_broker_that_stands_still_makes_no_step_late() -> None:
    world = World()
    runs = [f"r{n}" for n in range(20)]
    for run in runs:
        world.start(run)
    for _ in range(10):
        world.pass_ms(5_000, *runs)
        world.at_ms += 30_000
    world.pass_ms(5_000, *runs)
    assert world.said == []


def test_a_dead_step_is_found_although_the_broker_stands_still_again_and_again() -> None:
    world = World()
    world.start("r")
    for _ in range(10):
        world.pass_ms(1_000)
        world.at_ms += 8_000
    world.pass_ms(2_000)
    assert world.verdicts() == [("r", "s", 1, Verdict.SILENT)]


def test_append_time_that_goes_back_with_a_new_leader_makes_no_step_late() -> None:
    world = World()
    world.start("r")
    for _ in range(20):
        world.pass_ms(5_000, "r")
        world.at_ms -= 1_700
    assert world.said == []


def test_clocks_of_producers_decide_nothing_and_their_error_is_shown() -> None:
    """R009: ten minutes ahead and ten behind. R065: a clock that stands still."""
    world = World()
    skews = {"ahead": 10 * MINUTE_MS, "behind": -10 * MINUTE_MS, "right": 0}
    for worker in (*skews, "frozen"):
        world.start(worker, worker=worker, heartbeat_ms=2_000)
    frozen_at_ms = world.at_ms
    for _ in range(30):
        world.pass_ms(2_000)
        for worker, skew_ms in skews.items():
            world.beat(worker, worker=worker, sent_at_ms=world.at_ms + skew_ms)
        world.beat("frozen", worker="frozen", sent_at_ms=frozen_at_ms)
    assert world.said == []
    clocks = {clock.worker: clock for clock in world.monitor.worker_clocks()}
    assert {name: clocks[name].skew_ms for name in skews} == skews
    assert [name for name, clock in clocks.items() if clock.frozen] == ["frozen"]


def test_a_monitor_host_whose_clock_jumps_says_nothing_wrong() -> None:
    """R139: an hour back, two forward; only append time counts."""
    world = World()
    world.start("r")
    wall_ms = world.at_ms
    for number in range(120):
        wall_ms += (250, -3_600_000, 7_200_000)[1 if number == 40 else 2 if number == 80 else 0]
        world.at_ms += 250
        world.heartbeats += 1
        record = Canary(partition=PARTITION, monitor="engine-1", number=number, sent_at_ms=wall_ms)
        world.monitor.canary(record, world.at_ms)
        if number % 4 == 0:
            world.beat("r")
        world.judge()
    assert world.said == []
    assert world.monitor.suspects() == 0


def test_the_monitor_knows_its_own_canaries() -> None:
    """R126: a monitor that reads none of its own canaries is not working."""
    world = World()
    other = Canary(partition=PARTITION, monitor="engine-2", number=99)
    world.monitor.canary(other, world.at_ms)
    assert world.monitor.echo == -1
    world.pass_ms(1_000)
    assert world.monitor.echo == 4


def test_how_far_to_read_back_covers_the_largest_threshold() -> None:
    world = World()
    assert world.monitor.readback_ms == 60_000
    world.start("r", heartbeat_ms=300_000)
    assert world.monitor.readback_ms == 1_800_000


def test_random_pauses_delays_and_restarts_of_the_monitor_kill_no_live_step() -> None:
    for seed in range(20):
        random.seed(seed)
        world = World()
        runs = [f"r{n}" for n in range(10)]
        for run in runs:
            world.start(run)
        for _ in range(60):
            world.pass_ms(random.randrange(250, 6_000, 250), *runs)
            pause = random.choice(["broker", "monitor", "none"])
            if pause == "broker":
                world.at_ms += random.randrange(60_000)
            elif pause == "monitor":
                for _ in range(random.randrange(40)):
                    world.at_ms += 1_000
                    world.beat(*runs)
        assert world.said == [], f"seed {seed}"
