"""After how many versions a link is written, from what a partition measures."""

from __future__ import annotations

from dalsegno.storage.snapshots.pace import Pace


def worked(pace: Pace, *, between: int, event_s: float, link_s: float, seconds: int = 300) -> None:
    """So many seconds in which runs go on, each version `between` events behind the last."""
    for second in range(seconds):
        pace.folded(1_000, 1_000 * event_s)
        for _ in range(50):
            pace.made(between)
        pace.took(5, 5 * link_s)
        pace.tick(float(second), 10)


def test_what_a_fold_has_to_go_through_for_a_version_shortens_it() -> None:
    few, many = Pace(), Pace()
    worked(few, between=10, event_s=50e-6, link_s=500e-6)
    worked(many, between=500, event_s=50e-6, link_s=500e-6)
    assert many.every < few.every
    assert (few.every, many.every) == (few.optimum, many.optimum)


def test_dear_links_lengthen_it() -> None:
    cheap, dear = Pace(), Pace()
    worked(cheap, between=100, event_s=50e-6, link_s=50e-6)
    worked(dear, between=100, event_s=50e-6, link_s=2e-3)
    assert cheap.every < dear.every


def test_chains_that_were_found_behind_shorten_it() -> None:
    pace = Pace()
    worked(pace, between=100, event_s=50e-6, link_s=500e-6)
    before = pace.every
    for second in range(300, 360):
        for _ in range(50):
            pace.made(100)
        pace.failed(1_000)
        pace.tick(float(second), 10)
    assert pace.every < before


def test_it_stays_at_or_below_what_is_set_and_says_what_would_be_best() -> None:
    pace = Pace(versions_max=3)
    assert pace.every == 3
    worked(pace, between=10, event_s=50e-6, link_s=2e-3)
    assert (pace.every, pace.optimum) == (3, 20)


def test_it_chooses_once_a_second() -> None:
    pace = Pace()
    assert [pace.tick(at, 0) for at in (5.0, 5.4, 6.0, 6.5, 7.1)] == [
        False, False, True, False, True,
    ]  # fmt: skip


def test_a_learned_factor_keeps_the_bounds() -> None:
    pace = Pace(learned=True, versions_max=12)
    seen = set()
    for round_ in range(6):
        worked(pace, between=100, event_s=50e-6, link_s=500e-6, seconds=(round_ + 1) * 100)
        seen.add(pace.every)
        assert 1 <= pace.every <= 12
    assert 1 <= pace.optimum <= 20
