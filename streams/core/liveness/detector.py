"""When silence means something: thresholds from the gaps between heartbeats of one kind of step."""

from __future__ import annotations

from typing import Protocol

from dalsegno.streams.core.liveness.histogram import GapHistogram

SUSPECT_FACTOR, SUSPECT_INTERVALS_MIN, SUSPECT_INTERVALS_MAX = 2, 2, 3
SUSPECT_MS_MAX = 30_000
DEAD_FACTOR, DEAD_INTERVALS_MAX = 6, 6
DEAD_MS_MIN, DEAD_MS_MAX = 10_000, 60_000


class Detector(Protocol):
    """Learns the gaps of one kind of step on one class of workers, in constant memory.

    `interval_ms` is the interval that the step declares (at least 1). Results are milliseconds of
    the partition clock after the last sign of life; dead is never before suspect. Only dead becomes
    a verdict.
    """

    def observe(self, gap_ms: int) -> None:
        """Count the gap (ms) between two signs of life of a step."""
        ...

    def suspect_ms(self, interval_ms: int) -> int:
        """Longer silence than this is worth showing."""
        ...

    def dead_ms(self, interval_ms: int) -> int:
        """Longer silence than this is a verdict."""
        ...


class HistogramDetector:
    """Multiples of the 99th percentile between a floor and a ceiling.

    `suspect = clamp(2 Q, 2 T, max(30 s, 3 T))`, `dead = clamp(6 Q, 10 s, max(60 s, 6 T))`, T the
    declared interval, which stands for Q before there is a sample. A step that beats more often
    than it declares may fall back to what it declared: dead is not below suspect.
    """

    __slots__ = ("_gaps",)

    def __init__(self) -> None:
        self._gaps = GapHistogram()

    def observe(self, gap_ms: int) -> None:
        """Count a gap (ms)."""
        self._gaps.add(gap_ms)

    def suspect_ms(self, interval_ms: int) -> int:
        """Threshold for showing a step as suspect."""
        quantile_ms = self._gaps.quantile_ms() or interval_ms
        ceiling_ms = max(SUSPECT_MS_MAX, SUSPECT_INTERVALS_MAX * interval_ms)
        return min(
            max(SUSPECT_FACTOR * quantile_ms, SUSPECT_INTERVALS_MIN * interval_ms), ceiling_ms
        )

    def dead_ms(self, interval_ms: int) -> int:
        """Threshold for the verdict `silent`."""
        quantile_ms = self._gaps.quantile_ms() or interval_ms
        ceiling_ms = max(DEAD_MS_MAX, DEAD_INTERVALS_MAX * interval_ms)
        dead_ms = min(max(DEAD_FACTOR * quantile_ms, DEAD_MS_MIN), ceiling_ms)
        return max(dead_ms, self.suspect_ms(interval_ms))


class FixedDetector:
    """The plain policy: so many declared intervals, dead at `floor_ms` at least; learns nothing."""

    __slots__ = ("_dead_intervals", "_floor_ms", "_suspect_intervals")

    def __init__(
        self,
        suspect_intervals: int = 4,
        dead_intervals: int = 10,
        floor_ms: int = DEAD_MS_MIN,
    ) -> None:
        if not 0 < suspect_intervals <= dead_intervals:
            raise ValueError(
                f"suspect_intervals={suspect_intervals} must be positive and at most "
                f"dead_intervals={dead_intervals}"
            )
        self._suspect_intervals = suspect_intervals
        self._dead_intervals = dead_intervals
        self._floor_ms = floor_ms

    def observe(self, gap_ms: int) -> None:
        """Nothing is learned."""

    def suspect_ms(self, interval_ms: int) -> int:
        """Threshold for showing a step as suspect."""
        return self._suspect_intervals * interval_ms

    def dead_ms(self, interval_ms: int) -> int:
        """Threshold for the verdict `silent`."""
        return max(self._floor_ms, self._dead_intervals * interval_ms)
