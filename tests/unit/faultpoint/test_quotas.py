"""Who gets how many permits; leases that lapse; and that the state comes back as it was."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.faultpoint.lab import NAME, T0, Lab, permits, states

from dalsegno.schemas.control import QuotaGranted
from dalsegno.streams.core.faultpoint.actors import FaultPoints
from dalsegno.streams.core.faultpoint.point import Phase
from dalsegno.streams.core.faultpoint.settings import DEFAULTS
from dalsegno.streams.core.faultpoint.sides import Side, share


@given(
    st.dictionaries(st.integers(0, 63), st.integers(0, 5_000), max_size=20), st.integers(-5, 20_000)
)
def test_all_that_is_free_or_wanted_is_given_and_nobody_gets_more_than_it_wants(
    wants: dict[int, int], free: int
) -> None:
    sides = {number: Side(waiting=want) for number, want in wants.items()}
    given_out = share(sides, free)
    assert sum(given_out.values()) == max(0, min(free, sum(wants.values())))
    assert all(0 < count <= wants[number] for number, count in given_out.items())
    total = sum(wants.values())
    if 0 < free < total:
        for number, want in wants.items():
            assert abs(given_out.get(number, 0) - free * want / total) <= 1


def test_a_window_of_one_goes_round() -> None:
    lab = Lab()
    for number in range(4):
        lab.report(number, waiting=500)
    lab.report(failures=5, waiting=500)
    served = []
    for _ in range(8):
        orders = lab.until_due()
        (grant,) = [order for order in orders if isinstance(order, QuotaGranted)]
        served.append(grant.partition)
        lab.report(grant.partition, failures=1, waiting=500)
    assert sorted(served[:4]) == [0, 1, 2, 3]
    assert served[:4] == served[4:]


def test_quotas_that_nobody_takes_lapse_without_blame() -> None:
    lab = Lab()
    lab.ramp()
    window = lab.point.window.size_x
    out = lab.point.out
    assert out > 0
    lab.wait(2 * DEFAULTS.lease_ms)
    assert lab.point.phase is Phase.RAMPING
    assert lab.point.in_a_row == lab.point.failures - 5 == 0
    assert lab.point.window.size_x <= window
    assert lab.point.out <= lab.point.size


def test_what_a_partition_had_out_is_forgotten_when_it_is_silent_for_minutes() -> None:
    lab = Lab()
    lab.ramp()
    lab.report(0, waiting=0, running=2)
    lab.report(1, waiting=7)
    assert lab.point.out == 2
    given_out = lab.wait(DEFAULTS.silent_ms)
    assert permits(given_out) > 0


def test_all_demand_met_for_a_while_ends_the_need_for_permits() -> None:
    lab = Lab()
    lab.ramp(waiting=1)
    lab.report(successes=1, rtt_ms=50)
    assert states(lab.wait(DEFAULTS.calm_ms - 1)) == []
    assert states(lab.wait(1)) == [(n, "closed", 0) for n in range(4)]
    assert lab.point.phase is Phase.HEALTHY
    assert lab.actors.next_log_deadline_ms is None


def test_a_closing_breaker_does_not_let_the_queue_go() -> None:
    lab = Lab()
    lab.ramp(waiting=10_000)
    for _ in range(40):
        lab.wait(500)
        assert lab.point.phase is Phase.RAMPING
        lab.report(waiting=9_000, running=lab.point.size)
    assert lab.point.size < 4


def test_after_a_standstill_of_the_service_windows_begin_small() -> None:
    lab = Lab()
    lab.ramp()
    for _ in range(6):
        lab.wait(60)
        lab.report(successes=lab.point.size, rtt_ms=50, waiting=1_000)
    assert lab.point.size > 20
    lab.wait(DEFAULTS.still_ms)
    assert lab.point.size == 1


def test_steps_that_wait_for_a_point_we_know_nothing_of_are_let_go_slowly() -> None:
    lab = Lab()
    first = lab.report(2, waiting=1_000)
    assert permits(first) == 1
    assert lab.point.phase is Phase.RAMPING


def test_demand_from_before_it_heard_of_the_recovery_does_not_count() -> None:
    lab = Lab()
    lab.ramp(waiting=1)
    before = lab.number()
    lab.report(successes=1, rtt_ms=50)
    lab.wait(DEFAULTS.calm_ms)
    assert lab.point.phase is Phase.HEALTHY
    assert lab.report(3, waiting=1, seen=before) == []
    assert lab.point.phase is Phase.HEALTHY


def test_numbers_grow_even_when_the_state_was_lost() -> None:
    lab = Lab()
    lab.break_down()
    number = lab.number()
    fresh = Lab()
    fresh.at_ms = 10
    fresh.report(failures=5)
    assert fresh.number() > number


class Honest:
    """Partitions that spend what they get at once, and attempts that end at random."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lab = Lab(self.random.randint(1, 6))
        self.waiting = {n: self.random.randint(0, 60) for n in range(self.lab.partitions)}
        self.running = dict.fromkeys(self.waiting, 0)
        self.seen = dict.fromkeys(self.waiting, 0)
        self.broken = 1.0

    def hear(self) -> None:
        orders, self.lab.orders = self.lab.orders, []
        for order in orders:
            partition = order.partition
            if isinstance(order, QuotaGranted):
                taken = min(order.permits, self.waiting[partition])
                self.waiting[partition] -= taken
                self.running[partition] += taken
            elif order.state == "open" or not order.window:
                self.running[partition] = 0
            self.seen[partition] = max(self.seen[partition], order.number)

    def step(self) -> None:
        lab, draw = self.lab, self.random
        lab.at_ms += draw.choice((0, 1, 20, 200, 1_500))
        partition = draw.randrange(lab.partitions)
        if draw.random() < 0.2:
            lab.wait(0)
            return
        ended = draw.randint(0, self.running[partition])
        if not lab.actors.points or lab.point.phase is Phase.HEALTHY:
            ended = draw.randint(0, 4)
        failures = sum(draw.random() < self.broken for _ in range(ended))
        self.running[partition] = max(0, self.running[partition] - ended)
        self.waiting[partition] += failures
        lab.report(
            partition, failures=failures, successes=ended - failures, rtt_ms=50,
            waiting=self.waiting[partition], running=self.running[partition],
            seen=self.seen[partition],
        )  # fmt: skip


@pytest.mark.parametrize("seed", range(60))
def test_never_more_than_allowed_is_out(seed: int) -> None:
    world = Honest(seed)
    lab = world.lab
    for number in range(400):
        world.broken = 1.0 if number < 120 else 0.02
        first = len(lab.orders)
        world.step()
        if not lab.actors.points:
            continue
        point, made = lab.point, lab.orders[first:]
        assert point.until_ms <= T0 + lab.at_ms + 6_000
        if point.phase is Phase.RAMPING:
            assert point.out <= point.size or not permits(made)
        elif point.phase is Phase.HALF_OPEN:
            assert sum(side.granted for side in point.sides.values()) <= 1
            assert permits(made) <= 1
        else:
            assert permits(made) == 0
        if world.random.random() < 0.7:
            world.hear()


@pytest.mark.parametrize("seed", range(10))
def test_a_restored_partition_goes_on_as_if_nothing_had_been(seed: int) -> None:
    world = Honest(seed)
    saved: dict[bytes, bytes] = {}
    for number in range(200):
        world.step()
        world.hear()
        if number % 7 == 0:
            saved.update((key, value) for key, value in world.lab.actors.capture() if value)
            assert saved == world.lab.actors.parts()
            back = FaultPoints.restore(0, world.lab.partitions, saved.items())
            assert back.digest() == world.lab.actors.digest()
            assert back.next_log_deadline_ms == world.lab.actors.next_log_deadline_ms
            world.lab.actors = back
    assert world.lab.point.name == NAME


def test_a_point_at_rest_makes_room_for_one_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dalsegno.streams.core.faultpoint.actors.POINTS_MAX", 3)
    lab = Lab()
    for name in ("c", "a", "b"):
        lab.at_ms += 1
        lab.report(name=name, failures=1, successes=1)
    lab.report(name="c", failures=5)
    lab.actors.capture()
    again = FaultPoints.restore(0, lab.partitions, lab.actors.parts().items())
    for actors in (lab.actors, again):
        lab.actors = actors
        lab.report(name="new", failures=1)
        assert sorted(actors.points) == ["b", "c", "new"]
        captured = dict(actors.capture())
        assert captured[b"fa"] is None
        assert captured[b"fnew"] is not None
    for name in ("b", "new"):
        lab.report(name=name, failures=5)
    lab.report(name="late", failures=1)
    assert sorted(lab.actors.points) == ["b", "c", "new"]
    assert lab.actors.refusals[-1].reason == "bad_fault_point"
