"""The window: how it grows, when it is cut, and what it learns from."""

from hypothesis import given
from hypothesis import strategies as st

from dalsegno.streams.core.faultpoint.settings import DEFAULTS
from dalsegno.streams.core.faultpoint.window import SCALE, Window


def grown(window: Window, count: int, span_ms: int = 50, at_ms: int = 0, **more: object) -> bool:
    given_more = {"baseline_ms": 50, "busy": True} | more
    return window.succeeded(count, span_ms, at_ms=at_ms, s=DEFAULTS, **given_more)  # type: ignore[arg-type]


def test_it_starts_at_one_and_doubles_with_each_window_of_successes() -> None:
    window = Window()
    sizes = []
    for _ in range(5):
        sizes.append(window.permits)
        grown(window, window.permits)
    assert sizes == [1, 2, 4, 8, 16]


def test_after_a_cut_it_grows_by_one_per_window() -> None:
    window = Window()
    grown(window, 9)
    assert window.failed(1_000, DEFAULTS)
    assert window.permits == 7
    for each in range(1, 4):
        grown(window, window.permits, at_ms=1_000)
        assert window.permits in (7 + each, 6 + each)


def test_failures_cut_it_at_most_once_per_smoothed_span() -> None:
    window = Window()
    grown(window, 99)
    cuts = [window.failed(at_ms, DEFAULTS) for at_ms in range(1_000, 1_052)]
    assert cuts.count(True) == 2
    assert cuts[0]
    assert cuts[51]


def test_it_is_never_below_one() -> None:
    window = Window()
    for at_ms in range(0, 100_000, 1_000):
        window.failed(at_ms, DEFAULTS)
    assert window.permits == 1


def test_spans_over_twice_the_least_cut_it() -> None:
    window = Window()
    grown(window, 31, at_ms=0)
    assert not grown(window, 24, span_ms=95, at_ms=200)
    assert grown(window, 24, span_ms=120, at_ms=400)
    assert window.permits < 55


def test_fast_failures_do_not_make_a_normal_span_look_slow() -> None:
    window = Window()
    grown(window, 8, baseline_ms=0)
    for at_ms in range(1_000, 9_000, 1_000):
        window.failed(at_ms, DEFAULTS)
    assert window.least_x == 50 * 16
    assert not grown(window, 8, baseline_ms=0, at_ms=20_000)


def test_a_window_that_nobody_fills_does_not_grow() -> None:
    window = Window()
    grown(window, 50, busy=False)
    assert window.permits == 1


def test_a_dependency_that_came_back_slower_than_it_was_is_not_starved() -> None:
    window = Window()
    for at_ms in range(0, 10_000, 200):
        grown(window, 1, span_ms=180, baseline_ms=50, at_ms=at_ms)
    assert window.permits > 5


@given(
    st.lists(
        st.tuples(
            st.booleans(), st.integers(0, 500), st.integers(0, 100_000), st.integers(0, 3_000)
        )
    )
)
def test_it_stays_within_its_bounds(steps: list[tuple[bool, int, int, int]]) -> None:
    window = Window()
    at_ms = 0
    for failed, count, span_ms, passed_ms in steps:
        at_ms += passed_ms
        before = window.size_x
        if failed:
            window.failed(at_ms, DEFAULTS)
            assert window.size_x <= before
        elif count:
            grown(window, count, span_ms, at_ms=at_ms)
            assert window.size_x <= before + count * SCALE
        assert SCALE <= window.size_x <= DEFAULTS.window_max * SCALE
