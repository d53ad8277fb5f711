"""Lines of held steps: what is in them is what was put and not taken, whoever leaves how."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dalsegno.streams.core.recovery.holding import FROZEN, PACED, POINT, Holds, Repair
from dalsegno.streams.core.recovery.order import Standing

LINES = [POINT + "payments", POINT + "mail", FROZEN, PACED]
RUNS = ["a", "b", "c"]
repairs = st.builds(Repair, by=st.just(""), rank_ms=st.integers(0, 9), usual_ms=st.integers(1, 9))
standings = st.builds(Standing, st.integers(0, 9), st.integers(0, 9), st.integers(0, 9_000))
places = st.integers(0, 3)
calls = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(LINES), st.sampled_from(RUNS), places, repairs),
    st.tuples(st.just("remove"), st.sampled_from(LINES), st.sampled_from(RUNS), places),
    st.tuples(st.just("restand"), st.sampled_from(RUNS), standings),
    st.tuples(st.just("drop"), st.sampled_from(RUNS)),
    st.tuples(st.just("take"), st.sampled_from(LINES)),
)


@given(st.lists(calls, max_size=60), st.data())
def test_lines_hold_what_was_put_and_has_not_left(
    history: list[tuple[object, ...]], data: st.DataObject
) -> None:
    holds = Holds()
    held: dict[tuple[str, str, int], Repair] = {}
    stands: dict[str, Standing] = {}
    for now_ms, (what, *args) in enumerate(history, 10):
        if what == "put":
            by, run_id, place, repair = args
            standing = stands.setdefault(run_id, data.draw(standings))  # type: ignore[arg-type]
            holds.put(by, run_id, place, repair, standing)  # type: ignore[arg-type]
            held[by, run_id, place] = repair  # type: ignore[index,assignment]
        elif what == "remove":
            holds.remove(*args)  # type: ignore[arg-type]
            held.pop(tuple(args), None)  # type: ignore[call-overload]
        elif what == "restand":
            holds.restand(*args)  # type: ignore[arg-type]
            stands[args[0]] = args[1]  # type: ignore[index,assignment]
        elif what == "drop":
            holds.drop(args[0])  # type: ignore[arg-type]
            held = {key: repair for key, repair in held.items() if key[1] != args[0]}
        else:
            expected = holds.first(args[0], now_ms)  # type: ignore[arg-type]
            found = holds.take(args[0], now_ms)  # type: ignore[arg-type]
            assert found == expected
            waiting = any(by == args[0] for by, _, _ in held)
            assert (found is not None) is waiting
            if found is not None:
                del held[args[0], found[0], found[1]]  # type: ignore[index]
        for by in LINES:
            assert holds.waiting(by) == sum(key[0] == by for key in held)
        assert bool(holds) is bool(held)


def test_a_restored_line_goes_on_with_its_balance() -> None:
    holds, again = Holds(), Holds()
    slow, short = Standing(0, 500, 1_000), Standing(9_000, 50, 100_000)
    step = Repair(usual_ms=10, rank_ms=10)
    for place in range(6):
        holds.put(FROZEN, "slow", place, step, slow)
        holds.put(FROZEN, "short", place, step, short)
    assert [holds.take(FROZEN, 9_999) for _ in range(2)] == [("slow", 0), ("short", 0)]
    again.load_balances(holds.balances())
    for place in range(1, 6):
        again.put(FROZEN, "short", place, step, short)
        again.put(FROZEN, "slow", place, step, slow)
    for _ in range(10):
        assert again.take(FROZEN, 9_999) == holds.take(FROZEN, 9_999)
    assert not holds
    assert not again
    assert holds.balances() == []
