"""After how many steps the next snapshot pays: Young's formula, calibrated by what happens.

    k = clamp(round(sqrt(2 c / (failure rate · step work · calibration))), 1, 20)

c is the fixed cost of a snapshot; the work between two snapshots is what a failure makes to be
redone, half of it on average (J. W. Young, A first order approximation to the optimum checkpoint
interval, CACM 17(9), 1974; J. T. Daly, A higher order estimate, FGCS 22(3), 2006). The rate of
failures is learned per bucket of load, with a prior of one failure in a thousand steps; old
observations fade with a half-life of 50 ticks. The calibration is the moving ratio of the redone
work that was observed to the one that the formula predicted.

Costs are in any unit, the same for all; seconds in the engine.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec

STEPS_MIN: Final = 1
STEPS_MAX: Final = 20
BUCKETS: Final = 3
HALF_LIFE_TICKS: Final = 50
_PRIOR_FAILURES: Final = 1.0
_PRIOR_STEPS: Final = 1_000.0
_COST_GAIN: Final = 0.1
_WORK_GAIN: Final = 0.02
_CALIBRATION_GAIN: Final = 0.02
_CALIBRATION_GAIN_MAX: Final = 0.5
_CALIBRATION_MIN: Final = 0.25
_CALIBRATION_MAX: Final = 8.0
_FADE: Final = 0.5 ** (1 / HALF_LIFE_TICKS)


class Tick(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What happened since the last one, in the bucket that was asked for then.

    `work` is the cost of all steps done, `snapshot_cost` the fixed cost of the snapshots taken,
    `redone` the cost of the work that failures made to be done again.
    """

    steps: int
    failures: int
    work: float
    snapshots: int
    snapshot_cost: float
    redone: float


def interval(cost: float, failure_rate: float, step_work: float, calibration: float = 1.0) -> int:
    """Steps between two snapshots. The rate is per step, above 0."""
    expected = failure_rate * step_work * calibration
    if expected <= 0:
        return STEPS_MAX
    return max(STEPS_MIN, min(STEPS_MAX, round(math.sqrt(2 * cost / expected))))


def bucket(load: float) -> int:
    """The bucket of a load between 0 and 1."""
    return max(0, min(BUCKETS - 1, int(load * BUCKETS)))


class Cadence:
    """Learns what the formula needs. One for each engine, or each flow."""

    def __init__(self, *, cost: float = 0.01, step_work: float = 1.0) -> None:
        self._failures = [0.0] * BUCKETS
        self._steps = [0.0] * BUCKETS
        self._cost: list[float | None] = [None] * BUCKETS
        self._first_cost = cost
        self._work = step_work
        self._calibration = 1.0
        self._bucket = 0
        self._interval = STEPS_MAX

    @property
    def calibration(self) -> float:
        """Observed over predicted redone work."""
        return self._calibration

    @property
    def bucket(self) -> int:
        """That of the last question."""
        return self._bucket

    def failure_rate(self) -> float:
        """Failures per step in the present bucket, with the prior."""
        place = self._bucket
        return (self._failures[place] + _PRIOR_FAILURES) / (self._steps[place] + _PRIOR_STEPS)

    def steps(self, load: float) -> int:
        """After how many steps to take the next snapshot at this load (0 to 1)."""
        self._bucket = bucket(load)
        known = self._cost[self._bucket]
        cost = self._first_cost if known is None else known
        self._interval = interval(cost, self.failure_rate(), self._work, self._calibration)
        return self._interval

    def learn(self, tick: Tick) -> None:
        """Take in what happened since `steps` was asked. Ticks without steps say nothing."""
        if tick.steps <= 0:
            return
        place = self._bucket
        self._failures[place] = self._failures[place] * _FADE + tick.failures
        self._steps[place] = self._steps[place] * _FADE + tick.steps
        if tick.snapshots:
            seen, known = tick.snapshot_cost / tick.snapshots, self._cost[place]
            self._cost[place] = seen if known is None else known + _COST_GAIN * (seen - known)
        self._work += _WORK_GAIN * (tick.work / tick.steps - self._work)
        if tick.failures:
            self._calibrate(tick)

    def _calibrate(self, tick: Tick) -> None:
        predicted = tick.failures * self._work * (self._interval + 1) / 2
        if predicted <= 0:
            return
        gain = min(_CALIBRATION_GAIN_MAX, _CALIBRATION_GAIN * tick.failures)
        ratio = self._calibration + gain * (tick.redone / predicted - self._calibration)
        self._calibration = max(_CALIBRATION_MIN, min(_CALIBRATION_MAX, ratio))
