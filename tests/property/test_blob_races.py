"""No blob that a run holds is ever swept, in whatever order things happen."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest
from tests.property.blob_races import Races, renewing_by_name_alone

from dalsegno.storage.blobs.store import Stored
from dalsegno.storage.blobs.sweep import Sweep, Unheld

SEEDS = range(60)
TURNS = 1_500


def finds(seed: int, break_it: str = "") -> bool:
    """Whether this seed finds the deliberate bug."""
    races = Races(seed, caught_up=break_it != "not_caught_up")
    if break_it == "renewed_by_name":
        renewing_by_name_alone(races.lab)
    if break_it == "young_ones_too":
        races.judge = _without_ages
    try:
        races.run(TURNS)
    except AssertionError:
        return True
    return False


class _WithoutAges:
    def __init__(self, unheld: Unheld) -> None:
        self._unheld = unheld

    def __call__(self, listed: Sequence[Stored], marked: Collection[bytes], now_ms: int) -> Sweep:
        aged = [Stored(1, each.digest, each.key, each.size, 0) for each in listed]
        return self._unheld.judge(aged, marked, now_ms)


def _without_ages(unheld: Unheld) -> _WithoutAges:
    return _WithoutAges(unheld)


def test_what_a_run_holds_is_there_in_whatever_order_things_happen() -> None:
    swept = renewed = 0
    for seed in SEEDS:
        races = Races(seed)
        races.run(TURNS)
        swept += races.swept
        renewed += races.renewed
    assert swept > len(SEEDS), "sweeps that sweep nothing show nothing"
    assert renewed > len(SEEDS)


@pytest.mark.parametrize("bug", ["renewed_by_name", "not_caught_up", "young_ones_too"])
def test_the_orders_find_deliberate_bugs(bug: str) -> None:
    seed = next(seed for seed in range(200) if finds(seed, bug))
    assert not finds(seed), "else it is not the bug that was found"
