"""Ranks, bounds and list scheduling: invariants over random graphs, and what was promised."""

from __future__ import annotations

from random import Random
from statistics import mean

import pytest
from benchmarks import recovery_order
from benchmarks.recovery_graphs import DATA, read
from benchmarks.recovery_rivals import RULES, schedule
from tests.unit.recovery.graphs import damaged_run

from dalsegno.streams.core.recovery.forecast import Damaged, Forecast, forecast
from dalsegno.streams.core.recovery.ranks import graham_bound_ms, lower_bound_ms, what_is_left

real_data = pytest.mark.skipif(
    not DATA.is_dir(), reason=f"the real graphs are not at {DATA} (they lie beside the project)"
)


def check(runs: list[Damaged], found: Forecast, width: int) -> None:
    """Each unfinished step once, after what it needs, never more at a time than the width."""
    ends = {(s.run_id, s.place): s.end_ms for s in found.steps}
    assert len(ends) == len(found.steps)
    by_id = {run.run_id: run for run in runs}
    for run in runs:
        todo = {place for place in run.order if not run.finished[place]}
        assert {place for run_id, place in ends if run_id == run.run_id} == todo
        whole = [ends[run.run_id, place] for place in todo]
        assert found.whole_ms[run.run_id] == max(whole, default=0)
    for step in found.steps:
        run = by_id[step.run_id]
        for need in run.needs[step.place]:
            assert run.finished[need] or ends[step.run_id, need] <= step.begin_ms
    moments = sorted([(s.end_ms, -1) for s in found.steps] + [(s.begin_ms, 1) for s in found.steps])
    running = 0
    for _, change in moments:
        running += change
        assert running <= width


@pytest.mark.parametrize("seed", range(30))
def test_a_forecast_obeys_needs_width_and_both_bounds(seed: int) -> None:
    rng = Random(seed)
    width = rng.choice([1, 2, 5, 16])
    runs = [damaged_run(rng, f"run-{n}", rng.randint(1, 30)) for n in range(rng.randint(1, 8))]
    found = forecast(runs, width=width, now_ms=0)
    check(runs, found, width)
    assert forecast(list(reversed(runs)), width=width, now_ms=0) == found
    lefts = [what_is_left(r.order, r.dependents, r.usual_ms, r.finished) for r in runs]
    work, path = sum(left.work_ms for left in lefts), max(left.path_ms for left in lefts)
    assert lower_bound_ms(work, path, width) <= found.end_ms <= graham_bound_ms(work, path, width)


def test_an_upward_rank_is_a_step_and_the_longest_path_behind_it() -> None:
    #  0 (2) -> 1 (3) -> 3 (5);  0 -> 2 (10) -> 3;  4 (1) alone and done
    dependents = [[1, 2], [3], [3], [], []]
    left = what_is_left(range(5), dependents, [2, 3, 10, 5, 1], [False] * 4 + [True])
    assert left.ranks == (17, 8, 15, 5, 0)
    assert (left.work_ms, left.path_ms) == (20, 17)


def test_a_plan_of_ten_thousand_steps_needs_no_recursion() -> None:
    steps = 10_000
    dependents = [[place + 1] for place in range(steps - 1)] + [[]]
    left = what_is_left(range(steps), dependents, [1] * steps, [False] * steps)
    assert left.path_ms == left.work_ms == steps


def test_a_step_that_backs_off_is_not_forecast_before_its_time() -> None:
    run = Damaged(
        run_id="run",
        since_ms=0,
        order=(0, 1),
        needs=((), ()),
        dependents=((), ()),
        usual_ms=(10, 10),
        finished=(False, False),
        ready_ms=(0, 500),
    )
    assert [(s.begin_ms, s.place) for s in forecast([run], width=4, now_ms=100).steps] == [
        (100, 0),
        (500, 1),
    ]


def test_a_mass_failure_is_whole_sooner_than_first_in_first_out() -> None:
    """The benchmark's comparison on graphs made from a seed: many short runs, a few large ones."""
    shares = []
    for seed in range(3):
        rng = Random(seed)
        runs = [
            damaged_run(rng, f"run-{n:03}", rng.choice([3, 4, 5, 6, 7, 120]), needs_max=2)
            for n in range(60)
        ]
        fifo = schedule(runs, RULES["first in, first out"], 4)
        ours = forecast(runs, width=4, now_ms=0).whole_ms
        shares.append(mean(ours.values()) / mean(fifo.values()))
    assert mean(shares) <= 0.45


def test_a_hundred_tasks_on_a_graph_that_allows_it_take_their_bound() -> None:
    serial, ours, bound = recovery_order.seed_figures()
    assert serial == recovery_order.SEED_SERIAL_MS
    assert ours == bound <= recovery_order.SEED_PARALLEL_MS


@pytest.mark.shared_data
@real_data
def test_real_graphs_alone_stay_near_their_bound() -> None:
    for width, ratios in recovery_order.single(read("dags.jsonl.zst")).items():
        assert mean(ratios) <= recovery_order.SINGLE_MAX, width


@pytest.mark.shared_data
@real_data
@pytest.mark.parametrize("width", recovery_order.WIDTHS)
def test_real_runs_damaged_at_once_are_whole_as_soon_as_promised(width: int) -> None:
    large, small = read("dags.jsonl.zst"), read("wta_shell.jsonl.zst")
    rows = recovery_order.many(large, small, width, 5)
    assert rows["ours"][1] <= recovery_order.SHARE_MAX[width] * rows["first in, first out"][1]
