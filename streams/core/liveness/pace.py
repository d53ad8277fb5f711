"""When a living step is slow: no progress for longer than its type usually needs."""

from __future__ import annotations

from dalsegno.streams.core.liveness.histogram import GapHistogram

SLOW_FACTOR = 2
SLOW_MS_MIN = 30_000
LIMIT_PERCENT = 90
TIMED_OUT_PERCENT = 95
"""A step that ran for this share of its limit was stopped by it, as far as learning goes."""

SAMPLES_MIN = 30
"""Fewer samples than this say nothing about a percentile: the step's own limit stands alone."""


class Pace:
    """Learns how long steps of one type go without progress: `clamp(2 Q, 30 s, 0.9 limit)`.

    Points of progress are the start, each move of the progress counter and completion; so a type
    that never moves its counter is judged by its usual duration, one that does by its usual
    interval. The last stretch of a step that timed out stays out, or the limit would be learned.
    """

    __slots__ = ("_stretches",)

    def __init__(self) -> None:
        self._stretches = GapHistogram()

    def observe(self, stretch_ms: int, limit_ms: int) -> None:
        """Count a stretch (ms) between two points of progress of a step with that timeout."""
        if limit_ms <= 0 or stretch_ms * 100 < limit_ms * TIMED_OUT_PERCENT:
            self._stretches.add(stretch_ms)

    def slow_ms(self, limit_ms: int) -> int | None:
        """Threshold (ms) for `stuck`; None while nothing is learned and there is no limit."""
        ceiling_ms = limit_ms * LIMIT_PERCENT // 100 if limit_ms > 0 else None
        quantile_ms = self._stretches.quantile_ms()
        if quantile_ms is None or len(self._stretches) < SAMPLES_MIN:
            return ceiling_ms
        slow_ms = max(SLOW_FACTOR * quantile_ms, SLOW_MS_MIN)
        return slow_ms if ceiling_ms is None else min(slow_ms, ceiling_ms)
