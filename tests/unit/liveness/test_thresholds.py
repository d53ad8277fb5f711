import pytest

from dalsegno.streams.core.liveness import Detector, FixedDetector, HistogramDetector
from dalsegno.streams.core.liveness.pace import Pace


def _learned(*gaps_ms: int) -> HistogramDetector:
    detector = HistogramDetector()
    for gap_ms in gaps_ms:
        detector.observe(gap_ms)
    return detector


def test_the_declared_interval_stands_in_until_there_are_samples() -> None:
    detector = _learned()
    assert detector.suspect_ms(1_000) == 2_000
    assert detector.dead_ms(1_000) == 10_000
    assert detector.dead_ms(5_000) == 30_000


def test_regular_fast_heartbeats_never_shrink_the_threshold_below_its_floor() -> None:
    """R072: 500 beats exactly 100 ms apart, then none for 1.5 s."""
    detector = _learned(*[100] * 500)
    assert detector.dead_ms(100) == 10_000
    assert detector.suspect_ms(100) == 2 * 128


@pytest.mark.parametrize("gaps_ms", [(), (0,), (0, 0), (1_000,), (1_000, 2_000)])
@pytest.mark.parametrize("interval_ms", [1, 100, 1_000, 60_000])
def test_few_samples_stay_within_floor_and_ceiling(
    gaps_ms: tuple[int, ...], interval_ms: int
) -> None:
    detector = _learned(*gaps_ms)
    suspect_ms, dead_ms = detector.suspect_ms(interval_ms), detector.dead_ms(interval_ms)
    assert 2 * interval_ms <= suspect_ms <= max(30_000, 3 * interval_ms)
    assert max(10_000, suspect_ms) <= dead_ms <= max(60_000, 6 * interval_ms)


def test_irregular_heartbeats_raise_the_thresholds_to_their_ceilings_and_no_further() -> None:
    irregular = _learned(*[3_000] * 100)
    assert irregular.suspect_ms(1_000) == 2 * 4_096
    assert irregular.dead_ms(1_000) == 6 * 4_096
    wild = _learned(*[10**7] * 100)
    assert wild.suspect_ms(1_000) == 30_000
    assert wild.dead_ms(1_000) == 60_000


def test_a_step_may_fall_back_to_the_interval_that_it_declared() -> None:
    eager = _learned(*[1_000] * 500)
    assert eager.dead_ms(300_000) == eager.suspect_ms(300_000) == 600_000


@pytest.mark.parametrize("new", [HistogramDetector, FixedDetector])
def test_every_policy_keeps_the_rules_of_the_port(new: type[Detector]) -> None:
    detector = new()
    for gap_ms in (0, 500, 1_000, 90_000) * 50:
        detector.observe(gap_ms)
        for interval_ms in (1, 250, 1_000, 30_000):
            suspect_ms = detector.suspect_ms(interval_ms)
            assert 0 < suspect_ms <= detector.dead_ms(interval_ms)


def test_the_fixed_policy_learns_nothing() -> None:
    detector = FixedDetector(suspect_intervals=3, dead_intervals=12)
    for _ in range(100):
        detector.observe(50_000)
    assert (detector.suspect_ms(1_000), detector.dead_ms(1_000)) == (3_000, 12_000)
    with pytest.raises(ValueError, match="suspect_intervals=5"):
        FixedDetector(suspect_intervals=5, dead_intervals=4)


def test_a_step_is_slow_after_twice_the_usual_and_before_its_limit() -> None:
    pace = Pace()
    assert pace.slow_ms(0) is None
    assert pace.slow_ms(300_000) == 270_000
    for _ in range(100):
        pace.observe(5_000, 300_000)
    assert pace.slow_ms(300_000) == 30_000
    assert pace.slow_ms(20_000) == 18_000
    for _ in range(100):
        pace.observe(60_000, 300_000)
    assert pace.slow_ms(300_000) == 2 * 65_536


def test_steps_that_timed_out_do_not_teach_the_limit() -> None:
    pace = Pace()
    for _ in range(50):
        pace.observe(20_000, 300_000)
    for _ in range(50):
        pace.observe(299_900, 300_000)
    assert pace.slow_ms(300_000) == 2 * 23_170
