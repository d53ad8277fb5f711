"""A learned factor on the closed form, bounded, for where the model is wrong. Off by default.

State: load (3 buckets) times failure rate (3 buckets). Action: the closed form times ½, 1 or 2.
Reward: minus (cost of snapshots + failure rate · unsaved work) per step: the expected loss, not the
sampled one. While a state has few samples the factor is 1. The interval stays within the closed
form's bounds, so the worst that it can do is known.
"""

from __future__ import annotations

from random import Random
from typing import Final

import msgspec

from dalsegno.storage.snapshots.cadence import BUCKETS, STEPS_MAX, STEPS_MIN, Cadence, Tick

FACTORS: Final = (0.5, 1.0, 2.0)
TICKS_PER_CHOICE: Final = 10
FREEZE_SAMPLES: Final = 3
"""Choices in a state before it may leave the closed form."""
_RATES: Final = (5e-4, 5e-3)
_FORGET: Final = 0.999
_GAIN_MIN: Final = 0.02
_RATE_GAIN: Final = 0.05


class _Arm(msgspec.Struct):
    """One action in one state."""

    mean: float = 0.0
    weight: float = 0.0


class LearnedCadence:
    """Chooses a factor by sampling what each may be worth (Thompson). Same seed, same choices."""

    def __init__(self, closed_form: Cadence, seed: int = 0) -> None:
        self.closed_form = closed_form
        self._random = Random(seed)  # noqa: S311 - no secret
        self._arms = [[_Arm() for _ in FACTORS] for _ in range(BUCKETS * BUCKETS)]
        self._variance = [0.0] * (BUCKETS * BUCKETS)
        self._chosen = [0] * (BUCKETS * BUCKETS)
        self._rate = 1e-3
        self._ticks = 0
        self._loss = 0.0
        self._steps = 0
        self._state = 0
        self._action = FACTORS.index(1.0)

    @property
    def factor(self) -> float:
        """On the closed form, at present."""
        return FACTORS[self._action]

    def steps(self, load: float) -> int:
        """After how many steps to take the next snapshot at this load (0 to 1)."""
        optimum = self.closed_form.steps(load)
        if self._ticks == 0:
            self._state = self.closed_form.bucket * BUCKETS + sum(self._rate >= r for r in _RATES)
            self._action = self._choose(self._state)
        return max(STEPS_MIN, min(STEPS_MAX, round(optimum * self.factor)))

    def learn(self, tick: Tick, unsaved_work: float) -> None:
        """What happened; `unsaved_work` is what a failure at this moment would make to be redone,
        summed over the runs.
        """
        self.closed_form.learn(tick)
        if tick.steps <= 0:
            return
        rate = self.closed_form.failure_rate()
        self._rate += _RATE_GAIN * (tick.failures / tick.steps - self._rate)
        self._loss += tick.snapshot_cost + rate * unsaved_work
        self._steps += tick.steps
        self._ticks += 1
        if self._ticks >= TICKS_PER_CHOICE:
            self._reward(-self._loss / self._steps)
            self._ticks, self._loss, self._steps = 0, 0.0, 0

    def _choose(self, state: int) -> int:
        if self._chosen[state] < FREEZE_SAMPLES:
            return FACTORS.index(1.0)
        deviation = max(self._variance[state], 1e-12) ** 0.5
        best, action = float("-inf"), FACTORS.index(1.0)
        for place, arm in enumerate(self._arms[state]):
            if arm.weight < _GAIN_MIN:
                return place
            worth = arm.mean + self._random.gauss(0, 1) * deviation / (arm.weight + 0.5) ** 0.5
            if worth > best:
                best, action = worth, place
        return action

    def _reward(self, reward: float) -> None:
        state, arms = self._state, self._arms[self._state]
        arm = arms[self._action]
        self._chosen[state] += 1
        gain = max(_GAIN_MIN, 1 / self._chosen[state])
        error = reward - arm.mean if arm.weight >= _GAIN_MIN else 0.0
        self._variance[state] = (1 - gain) * self._variance[state] + gain * error * error
        for each in arms:
            each.weight *= _FORGET
        arm.weight += 1
        arm.mean += (reward - arm.mean) / arm.weight
