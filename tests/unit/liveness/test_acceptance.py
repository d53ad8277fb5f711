"""The acceptance numbers of the detector, scaled down; the benchmark has the rest."""

import pytest
from benchmarks import liveness
from benchmarks.liveness_traces import DATA, synthetic

real_data = pytest.mark.skipif(
    not DATA.is_dir(), reason=f"the real inputs are not at {DATA} (they lie beside the project)"
)


def test_live_steps_among_pauses_of_workers_and_broker_are_hardly_ever_called_dead() -> None:
    check = liveness.check_dead([synthetic(steps=50, workers=10, duration_s=1_200, seed=3)])
    assert check.passed, check


def test_pauses_of_the_broker_alone_kill_nothing_with_the_clock_and_something_without() -> None:
    check = liveness.check_broker_pauses(range(2), duration_s=600)
    assert check.passed, check


def test_the_crash_of_the_only_source_is_found_each_time() -> None:
    check = liveness.check_crash(trials=3)
    assert check.passed, check


@pytest.mark.shared_data
@real_data
def test_real_steps_that_ran_into_their_limit_were_slow_before_it() -> None:
    for check in liveness.check_slow():
        assert check.passed, check


@pytest.mark.shared_data
@real_data
def test_the_histogram_is_quicker_than_a_fixed_threshold_on_real_round_trips() -> None:
    table = liveness.compare_round_trips(splits=3)
    detection_s = {name: float(cells[1].split()[0]) for name, cells in table.items()}
    assert detection_s["histogram Q.99"] < detection_s["fixed"]


def test_a_running_step_takes_constant_and_little_memory() -> None:
    monitor = liveness.Monitor(0)
    assert monitor.bytes_per_step <= 64
