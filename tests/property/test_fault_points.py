"""Fault points under any sequence: permits at the moment of switching, pauses, and all or none."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.core.log import chain, handoffs, row
from tests.unit.core.point_log import PointLog
from tests.unit.faultpoint.lab import NAME, T0, Lab, permits

from dalsegno.schemas.control import BreakerState
from dalsegno.schemas.events import FailureType, StepFailed
from dalsegno.schemas.faults import FaultPointSet, HandAction
from dalsegno.schemas.outputs import StepState
from dalsegno.schemas.plan import RetryPolicy
from dalsegno.streams.core.faultpoint.point import Phase
from dalsegno.streams.core.faultpoint.settings import DEFAULTS

DEPENDENCIES = ("mail", "pay", "scan")
DEMAND = st.lists(st.integers(0, 120), min_size=1, max_size=6)
# What a dependency may ask for, and what nobody should: negative, and for ever.
ASKED_MS = st.one_of(st.integers(-5, 90_000), st.just(1 << 60))


def limit(most: int) -> FaultPointSet:
    return FaultPointSet(
        fault_point=NAME, request_id="r", action=HandAction.LIMIT, decided_by="ada",
        reason="drill", limit=most, number=1,
    )  # fmt: skip


def let_go_now(lab: Lab, demand: list[int], order: list[int], seen: int) -> int:
    """Permits that are given at this very moment, whoever asks, and however often. Nobody has
    heard yet of anything after the number `seen`.
    """
    asked = [
        lab.report(number % len(demand), waiting=demand[number % len(demand)], seen=seen)
        for number in [*range(len(demand)), *order]
    ]
    return sum(permits(orders) for orders in asked)


@given(DEMAND, st.integers(1, 20), st.lists(st.integers(0, 5), max_size=12))
def test_at_the_moment_of_switching_exactly_the_limit_is_let_go(
    demand: list[int], most: int, order: list[int]
) -> None:
    lab = Lab(len(demand))
    lab.break_down(waiting=max(1, demand[0]))
    lab.give(limit(most))
    lab.until_due()
    assert lab.point.phase is Phase.HALF_OPEN
    # The probe comes home, and within the same millisecond everybody asks.
    seen = lab.number()
    first = permits(lab.report(successes=1, rtt_ms=50, waiting=demand[0]))
    lab.point.window.size_x = 1_000 * most
    assert first + let_go_now(lab, demand, order, seen) == min(most, sum(demand))
    assert lab.point.out == min(most, sum(demand))


@given(DEMAND, st.lists(st.integers(0, 5), max_size=12))
def test_at_the_moment_of_trying_exactly_one_is_let_go(demand: list[int], order: list[int]) -> None:
    lab = Lab(len(demand))
    lab.report(failures=DEFAULTS.failures_to_open)
    for number, waiting in enumerate(demand):
        lab.report(number, waiting=waiting)
    seen = lab.number()
    first = permits(lab.until_due())
    assert first + let_go_now(lab, demand, order, seen) == min(1, sum(demand))


@given(st.integers(1, 40), st.integers(1, 12), st.data())
@settings(max_examples=40)
def test_a_partition_gives_out_exactly_its_permits_at_one_moment(
    runs: int, granted: int, data: st.DataObject
) -> None:
    log = PointLog()
    log.state(BreakerState.CLOSED, granted)
    before = data.draw(st.integers(0, runs))
    plan = chain(1, depends_on=("pay",))
    for number in range(before):
        log.start(plan, f"r{number}")
    log.grant(granted)
    for number in range(before, runs):
        log.start(plan, f"r{number}")
    # What nobody waited for went back at once; what came later asks anew.
    assert len(handoffs(log.outputs)) == min(before, granted)


@given(st.lists(st.tuples(ASKED_MS, st.integers(0, 9_000)), max_size=12))
def test_pauses_never_shrink_before_a_success_and_respect_what_is_asked_for_within_a_bound(
    probes: list[tuple[int, int]],
) -> None:
    lab = Lab()
    lab.break_down()
    last_ms, most_ms = 0, 6_000
    for asked_ms, late_ms in [(0, 0), *probes]:
        pause_ms = lab.point.until_ms - T0 - lab.at_ms
        assert max(800, last_ms) <= pause_ms <= most_ms
        last_ms = pause_ms
        lab.wait(pause_ms - 1)
        assert lab.point.phase is Phase.OPEN
        lab.wait(1 + late_ms)
        assert lab.point.phase is Phase.HALF_OPEN
        lab.report(failures=1, waiting=100, retry_after_ms=asked_ms)
        assert lab.point.phase is Phase.OPEN
        bounded_ms = min(asked_ms, DEFAULTS.retry_after_max_ms)
        most_ms = max(most_ms, bounded_ms)
        assert lab.point.until_ms - T0 - lab.at_ms >= bounded_ms


FAILURES = st.sampled_from((FailureType.DEPENDENCY, FailureType.TRANSIENT))


@given(
    st.lists(st.tuples(FAILURES, st.none() | ASKED_MS), min_size=1, max_size=14),
    st.integers(1, 3_000),
    st.integers(100, 250),
)
@settings(max_examples=60)
def test_an_attempt_waits_never_shorter_than_the_one_before_and_as_long_as_asked_within_a_bound(
    failures: list[tuple[FailureType, int | None]], initial_ms: int, factor_percent: int
) -> None:
    retry = RetryPolicy(
        initial_ms=initial_ms, max_ms=20_000, factor_percent=factor_percent, max_attempts=99,
        max_infra_attempts=99,
    )  # fmt: skip
    log = PointLog()
    log.policy(retry_after_max_ms=45_000)
    log.start(chain(1, retry=retry))
    own_ms = 1
    for epoch, (kind, asked_ms) in enumerate(failures, 1):
        log.began("s0", epoch)
        log.put(
            StepFailed(
                run_id="r", step="s0", epoch=epoch, failure_type=kind, retry_after_ms=asked_ms
            )
        )
        waits_ms = row(log, "s0").due_ms - log.now_ms
        bounded_ms = min(asked_ms or 0, 45_000)
        assert max(own_ms, bounded_ms) <= waits_ms <= max(20_000, bounded_ms)
        if waits_ms > bounded_ms:
            own_ms = waits_ms
        log.now_ms += waits_ms - 1_000
        assert [handoff.epoch for handoff in handoffs(log.tick())] == [epoch + 1]


def test_a_different_error_does_not_start_the_growth_again() -> None:
    """R026: ten times overloaded, once unavailable, overloaded again."""
    log = PointLog()
    log.start(chain(1, retry=RetryPolicy(max_attempts=99, max_infra_attempts=99)))
    waits = []
    kinds = [FailureType.DEPENDENCY] * 10 + [FailureType.TRANSIENT, FailureType.DEPENDENCY]
    for epoch, kind in enumerate(kinds, 1):
        log.began("s0", epoch)
        log.put(StepFailed(run_id="r", step="s0", epoch=epoch, failure_type=kind))
        due_ms = row(log, "s0").due_ms
        waits.append(due_ms - log.now_ms)
        log.now_ms = due_ms - 1_000
        log.tick()
    assert waits == sorted(waits)
    assert waits[-1] >= 30_000


@st.composite
def shared_needs(draw: st.DrawFn) -> tuple[list[tuple[str, ...]], list[tuple[str, int]]]:
    """What each of some runs depends on, and the quotas that come, in any order."""
    sets = st.lists(st.sampled_from(DEPENDENCIES), min_size=1, max_size=3, unique=True).map(tuple)
    needs = draw(st.lists(sets, min_size=1, max_size=12))
    quotas = draw(
        st.lists(st.tuples(st.sampled_from(DEPENDENCIES), st.integers(1, 4)), max_size=15)
    )
    return needs, quotas


@given(shared_needs())
@settings(max_examples=60)
def test_a_step_takes_a_permit_of_each_dependency_or_none_and_none_is_left_behind(
    case: tuple[list[tuple[str, ...]], list[tuple[str, int]]],
) -> None:
    needs, quotas = case
    log = PointLog()
    for name in DEPENDENCIES:
        log.state(BreakerState.CLOSED, 5, name)
    for number, depends_on in enumerate(needs):
        log.start(chain(1, depends_on=depends_on), f"r{number}")
    received: Counter[str] = Counter()
    views = log.partition._now.points.views
    for name, count in [*quotas, *((each, len(needs)) for each in (*DEPENDENCIES, *DEPENDENCIES))]:
        log.grant(count, name)
        received[name] += count
        gone = {handoff.run_id for handoff in handoffs(log.outputs)}
        used = Counter(
            each for number, of in enumerate(needs) if f"r{number}" in gone for each in of
        )
        for each in DEPENDENCIES:
            # Nobody has one without the others: what is not in hand and not used went back.
            assert views[each].permits + used[each] <= received[each]
    states = {row(log, "s0", f"r{number}").state for number in range(len(needs))}
    assert states == {StepState.DISPATCHED}
