"""The order of what waits: against a plain reference, for any history, and at its size."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from dalsegno.streams.core.recovery.order import (
    KEPT_ONE_IN,
    Standing,
    WaitOrder,
    pace,
)

RUNS = [f"run-{n}" for n in range(6)]
standings = st.builds(
    Standing,
    st.integers(0, 50),
    st.integers(0, 40),
    st.sampled_from([0, 500, 700, 800, 1_000, 9_000]),
)
puts = st.tuples(
    st.just("put"),
    st.sampled_from(RUNS),
    st.integers(0, 4),
    st.tuples(st.integers(0, 9), st.integers(1, 5)),
    standings,
)
restands = st.tuples(st.just("restand"), st.sampled_from(RUNS), standings)
removes = st.tuples(st.just("remove"), st.sampled_from(RUNS), st.integers(0, 4))
drops = st.tuples(st.just("drop"), st.sampled_from(RUNS))
takes = st.tuples(st.just("take"))
histories = st.lists(st.one_of(puts, puts, restands, removes, drops, takes), max_size=60)


class Reference:
    """The same rules by looking at everything each time."""

    def __init__(self) -> None:
        self.runs: dict[str, tuple[Standing, dict[int, tuple[int, int]]]] = {}
        self.balance = 0

    def do(self, now_ms: int, what: str, *args: object) -> tuple[str, int] | None:
        if what == "take":
            return self.take(now_ms)
        run_id = args[0]
        assert isinstance(run_id, str)
        if what == "put":
            _, place, step, standing = args
            steps = self.runs[run_id][1] if run_id in self.runs else {}
            self.runs[run_id] = (standing, {**steps, place: step})  # type: ignore[dict-item]
        elif run_id in self.runs and what == "restand":
            self.runs[run_id] = (args[1], self.runs[run_id][1])  # type: ignore[assignment]
        elif run_id in self.runs and what == "remove":
            self.runs[run_id][1].pop(args[1], None)  # type: ignore[call-overload]
            if not self.runs[run_id][1]:
                del self.runs[run_id]
        elif what == "drop":
            self.runs.pop(run_id, None)
        return None

    def take(self, now_ms: int) -> tuple[str, int] | None:
        if not self.runs:
            return None

        def short(run_id: str) -> tuple[int, int, str]:
            standing = self.runs[run_id][0]
            return standing.work_ms, standing.since_ms, run_id

        def slow(run_id: str) -> tuple[Fraction, int, str]:
            standing = self.runs[run_id][0]
            waited = now_ms - standing.since_ms
            return -Fraction(waited, pace(standing)), standing.since_ms, run_id

        kept = self.balance >= 0
        run_id = min(self.runs, key=slow if kept else short)
        steps = self.runs[run_id][1]
        place = min(steps, key=lambda p: (-steps[p][0], p))
        self.balance += steps[place][1] * (1 - KEPT_ONE_IN if kept else 1)
        self.do(now_ms, "remove", run_id, place)
        return run_id, place


def do(order: WaitOrder, now_ms: int, what: str, *args: object) -> tuple[str, int] | None:
    if what == "take":
        return order.take(now_ms)
    if what == "put":
        run_id, place, (rank, usual), standing = args  # type: ignore[misc]
        order.put(run_id, place, rank_ms=rank, usual_ms=usual, standing=standing)  # type: ignore[arg-type,has-type]
    else:
        getattr(order, what)(*args)
    return None


@given(histories, st.integers(50, 200))
@settings(max_examples=400)
def test_every_decision_is_that_of_looking_at_everything(
    history: list[tuple[object, ...]], now_ms: int
) -> None:
    order, reference = WaitOrder(), Reference()
    for step in history:
        assert do(order, now_ms, *step) == reference.do(now_ms, *step)  # type: ignore[arg-type]
        assert order.turns(now_ms, 1) == [x for x in [order.first(now_ms)] if x is not None]
        assert len(order) == sum(len(steps) for _, steps in reference.runs.values())
        now_ms += 7
    foreseen = order.turns(now_ms, 1_000)
    at, given_to = WaitOrder.load(order.entries(), order.balance_ms), []
    while (found := at.take(now_ms)) is not None:
        given_to.append(found)
    assert foreseen == given_to
    while reference.runs:
        assert order.first(now_ms) == order.first(now_ms)
        assert order.take(now_ms) == reference.take(now_ms)
    assert order.take(now_ms) is None


@given(histories, st.integers(50, 200))
def test_a_restored_order_decides_as_the_one_that_was_saved(
    history: list[tuple[object, ...]], now_ms: int
) -> None:
    order = WaitOrder()
    for step in history:
        do(order, now_ms, *step)  # type: ignore[arg-type]
    again = WaitOrder.load(reversed(order.entries()), order.balance_ms)
    assert again.entries() == order.entries()
    while len(order):
        assert again.take(now_ms) == order.take(now_ms)
        now_ms += 3


def test_a_quarter_of_the_time_goes_to_the_run_that_suffers_most() -> None:
    order = WaitOrder()
    for place in range(8):
        for name, standing in (
            ("long", Standing(0, 90_000, 90_000)),
            ("slow", Standing(0, 500_000, 1_000)),
            ("short", Standing(9_000, 50, 100_000)),
        ):
            order.put(name, place, rank_ms=10, usual_ms=10, standing=standing)
    given_to = [found[0] for _ in range(8) if (found := order.take(10_000)) is not None]
    assert given_to == ["slow", "short", "short", "short"] * 2


def test_long_steps_of_the_kept_share_count_for_what_they_take() -> None:
    order = WaitOrder()
    for place in range(50):
        slow, short = Standing(0, 500_000, 1_000), Standing(9_000, 50, 100_000)
        order.put("slow", place, rank_ms=10, usual_ms=100, standing=slow)
        order.put("short", place, rank_ms=10, usual_ms=10, standing=short)
    given_to = [found[0] for _ in range(31) if (found := order.take(10_000)) is not None]
    assert given_to.count("slow") == 1


def test_the_pace_of_a_run_keeps_two_binary_digits() -> None:
    expected = (-5, 0, 499, 511, 512, 700, 1_000, 1_535, 1_536, 100_000)
    paces = [384, 384, 384, 384, 512, 512, 768, 1_024, 1_536, 98_304]
    assert [pace(Standing(0, 0, n)) for n in expected] == paces


def test_a_hundred_thousand_runs_cost_a_logarithm_and_no_scan() -> None:
    """Counts how many runs are looked at, not seconds."""
    runs = 100_000
    order = WaitOrder()
    for n in range(runs):
        standing = Standing(n % 1_013, 1 + n * 7_919 % 90_001, 1 + n * 31 % 9_999)
        order.put(f"r{n}", 0, rank_ms=n % 97, usual_ms=1 + n % 89, standing=standing)
    looked_at = 0

    class Counting(dict[str, object]):
        def get(self, key: str, default: object = None) -> object:
            nonlocal looked_at
            looked_at += 1
            return super().get(key, default)

    order._lines = Counting(order._lines)  # type: ignore[assignment]
    for now_ms in range(2_000, 4_000):
        assert order.take(now_ms) is not None
    classes = 2 * (9_999 // 500).bit_length()
    assert looked_at <= 2_000 * (4 + classes)
