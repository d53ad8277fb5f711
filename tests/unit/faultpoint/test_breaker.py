"""The breaker of a fault point: when it opens, for how long, and what closes it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.faultpoint.lab import NAME, T0, Lab, permits, states

from dalsegno.schemas.control import Dependency, HealthCheck, Policy, QuotaGranted
from dalsegno.schemas.faults import FaultPointSet, HandAction, HealthReported
from dalsegno.schemas.outputs import Outcome
from dalsegno.streams.core.faultpoint.pauses import open_for_ms
from dalsegno.streams.core.faultpoint.point import Phase
from dalsegno.streams.core.faultpoint.settings import DEFAULTS


def by_hand(action: HandAction, number: int = 1, limit: int = 0) -> FaultPointSet:
    return FaultPointSet(
        fault_point=NAME, request_id=f"r{number}", action=action, decided_by="ada",
        reason="drill", limit=limit, number=number,
    )  # fmt: skip


def test_four_failures_are_nothing_and_the_fifth_opens_for_every_partition() -> None:
    lab = Lab()
    assert lab.report(failures=4) == []
    assert lab.point.phase is Phase.HEALTHY
    opened = lab.report(1, failures=1)
    assert states(opened) == [(n, "open", 1) for n in range(4)]
    assert permits(opened) == 0


def test_a_success_in_between_starts_the_count_again() -> None:
    lab = Lab()
    lab.report(failures=4)
    lab.report(1, successes=1, failures=2, in_a_row=2)
    lab.report(failures=2)
    assert lab.point.phase is Phase.HEALTHY
    lab.report(failures=1)
    assert lab.point.phase is Phase.OPEN


def test_half_open_exactly_one_permit_is_out_whoever_asks() -> None:
    lab = Lab()
    lab.break_down(waiting=10_000)
    probe = lab.until_due()
    assert permits(probe) == 1
    assert lab.point.phase is Phase.HALF_OPEN
    asked = [order for n in range(4) for order in lab.report(n, waiting=5_000, running=int(n == 0))]
    assert permits(asked + lab.wait(1_000)) == 0


def test_at_the_moment_of_switching_exactly_the_window_is_let_go() -> None:
    lab = Lab()
    lab.break_down(waiting=10_000)
    lab.until_due()
    closed = lab.report(successes=1, rtt_ms=50, waiting=9_999)
    assert lab.point.phase is Phase.RAMPING
    assert lab.point.size == permits(closed) == 2
    assert permits(lab.report(1, waiting=10_000)) == 0


def test_each_failed_probe_opens_for_longer_never_shorter_and_at_most_six_seconds() -> None:
    lab = Lab()
    lab.break_down()
    pauses = []
    for _ in range(8):
        pauses.append(lab.point.until_ms - T0 - lab.at_ms)
        lab.until_due()
        assert lab.point.phase is Phase.HALF_OPEN
        lab.report(failures=1, waiting=100)
        assert lab.point.phase is Phase.OPEN
    assert pauses == sorted(pauses)
    assert 800 <= pauses[0] <= 1_200
    assert pauses[-1] <= 6_000


def test_after_a_success_the_next_outage_begins_with_a_short_pause() -> None:
    lab = Lab()
    lab.break_down()
    for _ in range(5):
        lab.until_due()
        lab.report(failures=1, waiting=100)
    lab.until_due()
    lab.report(successes=1, rtt_ms=50, waiting=100)
    lab.report(failures=5, waiting=100)
    assert lab.point.until_ms - T0 - lab.at_ms <= 1_200


def test_retry_after_lengthens_a_pause_within_a_bound() -> None:
    lab = Lab()
    lab.report(failures=5, retry_after_ms=30_000)
    assert lab.point.until_ms - T0 - lab.at_ms == 30_000
    other = Lab()
    other.report(failures=5, retry_after_ms=3_600_000)
    assert other.point.until_ms - T0 - other.at_ms == DEFAULTS.retry_after_max_ms


def test_one_error_of_another_kind_does_not_shorten_what_was_asked_for() -> None:
    lab = Lab()
    lab.report(failures=5, retry_after_ms=60_000, waiting=9)
    for retry_after_ms in (60_000, 0, 60_000, 0):
        assert lab.point.until_ms - T0 - lab.at_ms == 60_000
        lab.until_due()
        lab.report(failures=1, waiting=9, retry_after_ms=retry_after_ms)
    lab.until_due()
    lab.report(successes=1, rtt_ms=50, waiting=9)
    lab.report(failures=5, waiting=9)
    assert lab.point.until_ms - T0 - lab.at_ms <= 1_200


def test_while_ramping_retry_after_stops_all_permits_until_then() -> None:
    lab = Lab()
    lab.ramp()
    lab.wait(500)
    assert permits(lab.report(failures=1, waiting=100, retry_after_ms=2_000)) == 0
    assert permits(lab.wait(1_999)) == 0
    assert permits(lab.wait(1)) > 0


def test_a_probe_that_is_never_heard_of_again_is_a_failure_and_another_one_follows() -> None:
    lab = Lab()
    lab.break_down()
    probe = lab.until_due()
    assert permits(probe) == 1
    lab.wait(DEFAULTS.lease_ms - 1)
    assert lab.point.phase is Phase.HALF_OPEN
    lab.wait(1)
    assert lab.point.phase is Phase.OPEN
    assert permits(lab.until_due()) == 1


def test_a_probe_that_runs_for_long_is_waited_for() -> None:
    lab = Lab()
    lab.break_down()
    lab.until_due()
    lab.report(waiting=99, running=1)
    lab.wait(DEFAULTS.lease_ms)
    assert lab.point.phase is Phase.HALF_OPEN
    lab.report(successes=1, rtt_ms=9_000, waiting=99)
    assert lab.point.phase is Phase.RAMPING


def test_a_probe_that_was_given_back_blames_nobody_and_goes_to_another_partition() -> None:
    lab = Lab()
    lab.break_down()
    lab.report(2, waiting=7)
    first = [o for o in lab.until_due() if isinstance(o, QuotaGranted)]
    second = [o for o in lab.report(first[0].partition) if isinstance(o, QuotaGranted)]
    assert [each.partition for each in first + second] == [0, 2]
    assert lab.point.phase is Phase.HALF_OPEN


def test_reports_from_before_the_probe_decide_nothing() -> None:
    lab = Lab()
    lab.break_down()
    before = lab.number()
    lab.until_due()
    lab.report(successes=3, waiting=97, seen=before)
    lab.report(1, failures=9, seen=before)
    assert lab.point.phase is Phase.HALF_OPEN
    lab.report(1, failures=9)
    assert lab.point.phase is Phase.HALF_OPEN


def test_nobody_waits_and_the_breaker_stays_half_open_for_who_comes() -> None:
    lab = Lab()
    lab.report(failures=5)
    lab.until_due()
    assert lab.actors.next_log_deadline_ms is None
    assert permits(lab.report(3, waiting=1)) == 1


def test_a_repeated_report_counts_once() -> None:
    lab = Lab()
    for _ in range(9):
        lab.report(failures=1, offset=7, index=2)
    assert lab.point.in_a_row == 1
    assert lab.actors.counts[Outcome.DUPLICATE] == 8
    lab.report(failures=1, offset=6, index=9)
    assert lab.point.in_a_row == 1


def test_a_passing_health_check_opens_the_way_for_a_probe_and_closes_nothing() -> None:
    lab = Lab()
    checked = Dependency(name=NAME, check=HealthCheck.TCP, target="pay:443")
    lab.policy(Policy(dependencies=(checked,)))
    lab.break_down()
    assert permits(lab.wait(3_000)) == 0
    assert lab.point.phase is Phase.OPEN
    lab.give(HealthReported(fault_point=NAME, number=0, healthy=False))
    assert lab.point.phase is Phase.OPEN
    probe = lab.give(HealthReported(fault_point=NAME, number=1, healthy=True))
    assert lab.point.phase is Phase.HALF_OPEN
    assert permits(probe) == 1
    assert lab.give(HealthReported(fault_point=NAME, number=1, healthy=True)) == []


def test_a_check_that_passed_long_ago_opens_nothing() -> None:
    lab = Lab()
    checked = Dependency(name=NAME, check=HealthCheck.TCP, target="pay:443")
    lab.policy(Policy(dependencies=(checked,)))
    lab.report(failures=5, retry_after_ms=20_000)
    lab.report(waiting=1)
    lab.give(HealthReported(fault_point=NAME, number=0, healthy=True))
    lab.wait(20_000)
    assert lab.point.phase is Phase.OPEN


def test_by_hand_open_stays_open_and_close_begins_with_a_window_of_one() -> None:
    lab = Lab()
    opened = lab.give(by_hand(HandAction.OPEN))
    assert [state for _, state, _ in states(opened)] == ["open"] * 4
    lab.report(waiting=50)
    assert permits(lab.wait(60_000)) == 0
    closed = lab.give(by_hand(HandAction.CLOSE, 2))
    assert permits(closed) == 1
    assert [hand.decided_by for hand in lab.point.hands] == ["ada", "ada"]
    assert "ada: drill" in lab.point.reason
    assert lab.give(by_hand(HandAction.OPEN)) == []


def test_a_limit_by_hand_holds_until_it_is_lifted() -> None:
    lab = Lab()
    limited = lab.give(by_hand(HandAction.LIMIT, limit=3))
    assert states(limited) == [(n, "closed", 1) for n in range(4)]
    lab.report(waiting=100)
    for _ in range(20):
        lab.wait(60)
        lab.report(successes=1, rtt_ms=50, waiting=100, running=2)
    assert lab.point.size == 3
    lab.report(running=0)
    lab.wait(10_000)
    assert lab.point.phase is Phase.RAMPING
    lab.give(by_hand(HandAction.LIMIT, 2))
    lab.wait(0)
    lab.wait(DEFAULTS.calm_ms)
    assert lab.point.phase is Phase.HEALTHY


def test_a_healthy_point_counts_nobody_as_waiting() -> None:
    lab = Lab()
    lab.ramp(waiting=1)
    lab.wait(DEFAULTS.calm_ms)
    lab.wait(DEFAULTS.calm_ms)
    assert lab.point.phase is Phase.HEALTHY
    assert lab.point.waiting == 0


@pytest.mark.parametrize(
    ("missing", "reason"),
    [({"decided_by": ""}, "unsigned"), ({"reason": ""}, "unsigned"), ({"number": 0}, "unnumbered")],
)
def test_who_and_why_and_a_number_are_required(missing: dict[str, object], reason: str) -> None:
    lab = Lab()
    lab.give(msgspec.structs.replace(by_hand(HandAction.OPEN), **missing))
    assert lab.actors.refusals[-1].reason == reason
    assert lab.actors.points == {}, "what is refused makes no point"
    assert dict(lab.actors.capture()) == lab.actors.parts()


def test_an_older_hand_control_that_comes_again_undoes_no_newer_one() -> None:
    lab = Lab()
    controls = [by_hand(HandAction.OPEN, 1)]
    controls += [by_hand(HandAction.LIMIT, number, limit=number) for number in range(2, 30)]
    for control in controls:
        lab.give(control)
    lab.give(by_hand(HandAction.CLOSE, 30))
    before = msgspec.msgpack.encode(lab.point)
    assert [lab.give(control) for control in controls] == [[]] * len(controls)
    assert lab.point.phase is Phase.RAMPING
    assert lab.point.limit == 29
    assert lab.actors.counts[Outcome.DUPLICATE] == len(controls)
    assert msgspec.msgpack.encode(lab.point) == before


@given(st.text(min_size=1, max_size=20), st.integers(1, 200), st.integers(0, 6_000))
def test_pauses_are_never_zero_negative_shrinking_or_beyond_the_bound(
    name: str, openings: int, last_ms: int
) -> None:
    pause = open_for_ms(name, openings, last_ms, DEFAULTS)
    assert max(800, last_ms) <= pause <= 6_000


def test_jitter_reaches_both_ends() -> None:
    firsts = [open_for_ms(f"service-{n}", 1, 0, DEFAULTS) for n in range(2_000)]
    assert min(firsts) < 810
    assert max(firsts) > 1_190


@pytest.mark.parametrize("partition", [-1, 4])
def test_a_report_of_a_partition_that_is_not_there_is_refused(partition: int) -> None:
    lab = Lab()
    lab.report(partition, failures=9)
    assert lab.actors.counts[Outcome.REFUSED] == 1
