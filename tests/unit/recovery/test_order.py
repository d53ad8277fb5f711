"""The order of what waits: against a plain reference, for any history, and at its size."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from dalsegno.streams.core.recovery.order import (
    KEPT_ONE_IN,
    Standing,
    Waiting,
    WaitOrder,
    pace,
    slowdown,
)

RUNS = [f"run-{n}" for n in range(6)]
standings = st.builds(
    Standing, st.integers(0, 50), st.integers(0, 40), st.sampled_from([0, 1, 2, 3, 5, 8, 90])
)
puts = st.tuples(
    st.just("put"), st.sampled_from(RUNS), st.integers(0, 4), st.integers(0, 9), standings
)
restands = st.tuples(st.just("restand"), st.sampled_from(RUNS), standings)
removes = st.tuples(st.just("remove"), st.sampled_from(RUNS), st.integers(0, 4))
drops = st.tuples(st.just("drop"), st.sampled_from(RUNS))
takes = st.tuples(st.just("take"))
histories = st.lists(st.one_of(puts, puts, restands, removes, drops, takes), max_size=60)


class Reference:
    """The same rules by looking at everything each time."""

    def __init__(self) -> None:
        self.runs: dict[str, tuple[Standing, dict[int, int]]] = {}
        self.turn = 0

    def do(self, now_ms: int, what: str, *args: object) -> tuple[str, int] | None:
        if what == "take":
            return self.take(now_ms)
        run_id = args[0]
        assert isinstance(run_id, str)
        if what == "put":
            _, place, rank, standing = args
            ranks = self.runs[run_id][1] if run_id in self.runs else {}
            self.runs[run_id] = (standing, {**ranks, place: rank})  # type: ignore[dict-item]
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
            return -Fraction(*slowdown(standing, now_ms)), standing.since_ms, run_id

        kept = self.turn % KEPT_ONE_IN == KEPT_ONE_IN - 1
        run_id = min(self.runs, key=slow if kept else short)
        ranks = self.runs[run_id][1]
        place = min(ranks, key=lambda p: (-ranks[p], p))
        self.do(now_ms, "remove", run_id, place)
        self.turn += 1
        return run_id, place


def do(order: WaitOrder, now_ms: int, what: str, *args: object) -> tuple[str, int] | None:
    if what == "take":
        return order.take(now_ms)
    if what == "put":
        run_id, place, rank, standing = args
        order.put(run_id, place, rank_ms=rank, standing=standing)  # type: ignore[arg-type]
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
        assert len(order) == sum(len(ranks) for _, ranks in reference.runs.values())
        now_ms += 7
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
    again = WaitOrder.load(reversed(order.entries()), order.turn)
    assert again.entries() == order.entries()
    while len(order):
        assert again.take(now_ms) == order.take(now_ms)
        now_ms += 3


def test_one_of_four_goes_to_the_run_that_suffers_most() -> None:
    order = WaitOrder()
    for place in range(8):
        order.put("long", place, rank_ms=10, standing=Standing(0, 90_000, 90_000))
        order.put("slow", place, rank_ms=10, standing=Standing(0, 500_000, 1_000))
        order.put("short", place, rank_ms=10, standing=Standing(9_000, 50, 100_000))
    given_to = [found[0] for _ in range(8) if (found := order.take(10_000)) is not None]
    assert given_to == ["short", "short", "short", "slow"] * 2


def test_the_pace_of_a_run_keeps_two_binary_digits() -> None:
    assert [pace(Standing(0, 0, n)) for n in (-5, 0, 1, 2, 3, 5, 6, 7, 100, 1_000)] == [
        *[1, 1, 1, 2, 3, 4, 6, 6, 96, 768]
    ]


def test_a_hundred_thousand_runs_cost_a_logarithm_and_no_scan() -> None:
    """Counts the comparisons of run ids' entries, not seconds."""
    runs = 100_000
    order = WaitOrder.load(
        Waiting(f"r{n}", 0, n % 97, Standing(n % 1_013, 1 + n * 7_919 % 90_001, 1 + n * 31 % 9_999))
        for n in range(runs)
    )
    looked_at = 0

    class Counting(dict[str, object]):
        def get(self, key: str, default: object = None) -> object:
            nonlocal looked_at
            looked_at += 1
            return super().get(key, default)

    order._lines = Counting(order._lines)  # type: ignore[assignment]
    for now_ms in range(2_000, 4_000):
        assert order.take(now_ms) is not None
    classes = 2 * (9_999).bit_length()
    assert looked_at <= 2_000 * (4 + classes)
