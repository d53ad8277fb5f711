"""The detectors that ours is compared with: each is a threshold `base + parameter * slope`.

All learn from the gaps before the one that they judge, per source. Sources: TCP's retransmission
timer (mean and deviation), phi accrual with a normal and an exponential distribution, and ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from dalsegno.streams.core.liveness.histogram import GapHistogram

Gaps = NDArray[np.float64]
"""Seconds between heartbeats, shape (sources, gaps)."""

WARM = 30
"""Gaps of each source that are learned from and not judged."""

INTERVAL_S = 1.0
_MEAN_WEIGHT, _DEVIATION_WEIGHT, _PHI_WEIGHT = 1 / 8, 1 / 4, 1 / 200


@dataclass(frozen=True)
class Rival:
    """A detector with the parameters that are tried."""

    name: str
    parameters: tuple[float, ...]
    learn: Callable[[Gaps], tuple[Gaps, Gaps]]
    floor_s: float = 0.0


@dataclass(frozen=True)
class Score:
    """What one parameter gives: mistakes per million heartbeats, and mean threshold in seconds."""

    parameter: float
    mistakes: float
    detection_s: float


def _fixed(gaps: Gaps) -> tuple[Gaps, Gaps]:
    return np.zeros_like(gaps), np.full_like(gaps, INTERVAL_S)


def _deviation(gaps: Gaps) -> tuple[Gaps, Gaps]:
    mean = np.full(len(gaps), INTERVAL_S)
    deviation = mean / 2
    base, slope = np.empty_like(gaps), np.empty_like(gaps)
    for i in range(gaps.shape[1]):
        base[:, i], slope[:, i] = mean, np.maximum(deviation, 0.025 * INTERVAL_S)
        error = gaps[:, i] - mean
        mean = mean + error * _MEAN_WEIGHT
        deviation = deviation + (np.abs(error) - deviation) * _DEVIATION_WEIGHT
    return base, slope


def _moments(gaps: Gaps) -> tuple[Gaps, Gaps]:
    mean = np.full(len(gaps), INTERVAL_S)
    square = mean * 1.25
    base, slope = np.empty_like(gaps), np.empty_like(gaps)
    for i in range(gaps.shape[1]):
        spread = np.sqrt(np.maximum(square - mean**2, 0))
        base[:, i], slope[:, i] = mean, np.maximum(spread, 0.1 * INTERVAL_S)
        mean = mean + _PHI_WEIGHT * (gaps[:, i] - mean)
        square = square + _PHI_WEIGHT * (gaps[:, i] ** 2 - square)
    return base, slope


def _exponential(gaps: Gaps) -> tuple[Gaps, Gaps]:
    mean, _ = _moments(gaps)
    return np.zeros_like(gaps), mean * np.log(10)


def _histogram(gaps: Gaps) -> tuple[Gaps, Gaps]:
    slope = np.empty_like(gaps)
    for source, row in enumerate((gaps * 1_000).astype(int).tolist()):
        learned = GapHistogram()
        for i, gap_ms in enumerate(row):
            slope[source, i] = (learned.quantile_ms() or INTERVAL_S * 1_000) / 1_000
            learned.add(gap_ms)
    return np.zeros_like(gaps), slope


def _z(phi: float) -> float:
    """How many deviations leave a tail of 10^-phi; continued by a line where doubles end."""
    return NormalDist().inv_cdf(1 - 10**-phi) if phi < 15 else 8 + (phi - 15) / 4


_MULTIPLES = (1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 60, 120)
RIVALS = (
    Rival("fixed", _MULTIPLES, _fixed),
    Rival("mean + k deviations", (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256), _deviation),
    Rival(
        "phi, normal",
        tuple(_z(p) for p in (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 30, 50, 100, 200)),
        _moments,
    ),
    Rival("phi, exponential", (0.5, 0.75, *_MULTIPLES[:12], 16, 24, 48), _exponential),
    Rival("histogram Q.99", _MULTIPLES[:15], _histogram, floor_s=2 * INTERVAL_S),
)


def curve(rival: Rival, gaps: Gaps) -> list[Score]:
    """The scores of all parameters on these gaps."""
    base, slope = rival.learn(gaps)
    judged, base, slope = gaps[:, WARM:], base[:, WARM:], slope[:, WARM:]
    scores = []
    for parameter in rival.parameters:
        threshold = np.maximum(base + parameter * slope, rival.floor_s)
        mistakes = float((judged > threshold).mean()) * 1e6
        scores.append(Score(parameter, mistakes, float(threshold.mean())))
    return scores


def quickest(scores: list[Score], mistakes_max: float) -> Score | None:
    """The score with the shortest detection among those with few enough mistakes."""
    fit = [score for score in scores if score.mistakes <= mistakes_max]
    return min(fit, key=lambda score: score.detection_s, default=None)
