"""How many attempts may be out on a dependency at once: additive growth, multiplicative cuts.

Starts at 1 and doubles (slow start) until the first cut; then grows by one per window of successes.
Cut on a failure, or when the smoothed span of a step is more than twice the least, at most once per
smoothed span. Only successes feed the spans: what fails fast says nothing about speed. Fixed point,
so that every fold agrees to the last digit.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dalsegno.streams.core.faultpoint.settings import PointSettings

# Thousandths of a permit, sixteenths of a millisecond.
SCALE: Final = 1_000
SPAN_SCALE: Final = 16
# One sample moves the smoothed span by a fifth of the difference.
_SMOOTHING: Final = 5
# A summary of more successes than this moves it no further: all of the difference is in it by then.
_SAMPLES_MAX: Final = 24
_NO_THRESHOLD: Final = 1 << 40
# Smoothed spans before this many samples are the first sample's accident.
_SETTLED: Final = 4


class Window(msgspec.Struct, array_like=True, gc=False):
    """`size_x` in thousandths of a permit, spans in sixteenths of a millisecond (0: not known).

    `threshold_x`: below it the window grows by slow start. `cut_ms`: log time of the last cut.
    """

    size_x: int = SCALE
    threshold_x: int = _NO_THRESHOLD
    smooth_x: int = 0
    least_x: int = 0
    samples: int = 0
    cut_ms: int = 0

    @property
    def permits(self) -> int:
        """Attempts that may be out at once: 1 or more."""
        return max(1, self.size_x // SCALE)

    def reset(self, at_ms: int) -> None:
        """Begin small, by slow start. What was learned of spans is of another time."""
        self.size_x = SCALE
        self.threshold_x = _NO_THRESHOLD
        self.smooth_x = self.least_x = self.samples = 0
        self.cut_ms = at_ms

    def succeeded(
        self,
        count: int,
        span_ms: int,
        *,
        baseline_ms: int,
        busy: bool,
        at_ms: int,
        s: PointSettings,
    ) -> bool:
        """Takes `count` successes with a mean span of `span_ms`. True when they cut the window.

        `baseline_ms`: the usual span while all was well, 0 if unknown. `busy`: the window was in
        use, so that its size was what limited the flow; a window that nobody fills does not grow.
        """
        self._smooth(count, max(1, span_ms) * SPAN_SCALE)
        floor_x = max(baseline_ms * SPAN_SCALE, self.least_x)
        slow = self.smooth_x * 100 > floor_x * s.slow_percent
        if slow and at_ms - self.cut_ms > self.smooth_ms:
            self._cut(at_ms, s)
            return True
        if busy and not slow:
            self._grow(count, s)
        return False

    def failed(self, at_ms: int, s: PointSettings) -> bool:
        """An attempt failed. True when that cut the window: at most once per smoothed span."""
        if at_ms - self.cut_ms <= self.smooth_ms:
            return False
        self._cut(at_ms, s)
        return True

    @property
    def smooth_ms(self) -> int:
        """The smoothed span of a step, 0 before the first success."""
        return self.smooth_x // SPAN_SCALE

    def _smooth(self, count: int, span_x: int) -> None:
        if not self.smooth_x:
            self.smooth_x = span_x
        for _ in range(min(count, _SAMPLES_MAX)):
            self.smooth_x += (span_x - self.smooth_x) // _SMOOTHING
        self.samples = min(self.samples + count, _NO_THRESHOLD)
        if (
            self.samples >= _SETTLED and (not self.least_x or self.smooth_x < self.least_x)
        ) or self.samples < _SETTLED:
            self.least_x = self.smooth_x

    def _grow(self, count: int, s: PointSettings) -> None:
        ceiling_x = s.window_max * SCALE
        slow_start = min(count * SCALE, max(0, self.threshold_x - self.size_x))
        self.size_x += slow_start
        rest = count - slow_start // SCALE
        if rest > 0:
            self.size_x += rest * SCALE * SCALE // self.size_x
        self.size_x = min(self.size_x, ceiling_x)

    def _cut(self, at_ms: int, s: PointSettings) -> None:
        self.size_x = max(SCALE, self.size_x * s.cut_percent // 100)
        self.threshold_x = max(2 * SCALE, self.size_x)
        self.cut_ms = at_ms
