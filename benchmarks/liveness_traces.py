"""Heartbeat traces for the liveness benchmark: synthetic ones, and real inputs."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import zstandard
from numpy.typing import NDArray

Times = NDArray[np.float64]
"""Seconds, shape (sources, heartbeats), increasing along the second axis."""

DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data"
CANARY_S = 0.25
PAUSE_S_MIN, PAUSE_S_MAX = 0.2, 8.0


@dataclass(frozen=True)
class Trace:
    """Append times of heartbeats by source, and of the canaries of their partition, in seconds."""

    appended_s: Times
    canaries_s: NDArray[np.float64]

    @property
    def heartbeats(self) -> int:
        """How many there are."""
        return int(self.appended_s.size)


def _pauses(rng: np.random.Generator, duration_s: float, per_s: float) -> list[tuple[float, float]]:
    starts = np.sort(rng.uniform(0, duration_s, rng.poisson(duration_s * per_s)))
    lengths = np.exp(rng.uniform(np.log(PAUSE_S_MIN), np.log(PAUSE_S_MAX), len(starts)))
    return [(float(s), float(s + n)) for s, n in zip(starts, lengths, strict=True)]


def _held_back(
    times_s: Times, pauses: list[tuple[float, float]], rng: np.random.Generator, jitter_s: float
) -> None:
    """Move what falls into a pause to its end, plus jitter, in place."""
    for begin_s, end_s in pauses:
        inside = (times_s >= begin_s) & (times_s < end_s)
        times_s[inside] = end_s + rng.uniform(0, jitter_s, int(inside.sum()))


def synthetic(
    *,
    steps: int = 200,
    workers: int = 20,
    duration_s: float = 3_600,
    seed: int = 0,
    worker_pauses_per_s: float = 1 / 300,
    broker_pauses_per_s: float = 1 / 300,
) -> Trace:
    """Steps on workers of one partition, T = 1 s.

    A worker's pause (garbage collection) delays all its steps, a pause of the broker (0.2 to 8 s,
    log-uniform) all appends, canaries too.
    """
    rng = np.random.default_rng(seed)
    count = int(duration_s)
    sent_s = np.arange(count) + rng.uniform(0, 1, (steps, 1))
    sent_s = sent_s + np.abs(rng.normal(0, 0.05, (steps, count)))
    for worker in range(workers):
        pauses = _pauses(rng, duration_s, worker_pauses_per_s)
        _held_back(sent_s[worker::workers], pauses, rng, 0.01)
    appended_s = sent_s + rng.lognormal(np.log(0.004), 0.6, (steps, count))
    canaries_s = np.arange(0, duration_s, CANARY_S) + 0.005
    broker = _pauses(rng, duration_s, broker_pauses_per_s)
    _held_back(appended_s, broker, rng, 0.05)
    _held_back(canaries_s, broker, rng, 0.0)
    appended_s.sort(axis=1)
    return Trace(appended_s, np.sort(canaries_s))


def crash(seed: int, duration_s: float = 900) -> tuple[Trace, float]:
    """One source that crashes at the time returned, among many pauses of the broker."""
    rng = np.random.default_rng(1_000 + seed)
    crash_s = float(rng.uniform(0.6, 0.7) * duration_s)
    trace = synthetic(
        steps=1,
        workers=1,
        duration_s=duration_s,
        seed=seed,
        worker_pauses_per_s=0,
        broker_pauses_per_s=1 / 60,
    )
    alive = trace.appended_s[0][trace.appended_s[0] < crash_s]
    return Trace(alive[None, :], trace.canaries_s), crash_s


def _rows(name: str) -> list[dict[str, str]]:
    with (DATA / name).open("rb") as packed:
        text = zstandard.ZstdDecompressor().stream_reader(packed).read().decode()
    return list(csv.DictReader(io.StringIO(text)))


def round_trips() -> Times:
    """Heartbeats each second of 80 node pairs, each delayed by that pair's real round trip."""
    table = _rows("failures/seattle_rtt.csv.zst")
    pairs = [name for name in table[0] if name != "slice"]
    delay_s = np.array([[float(row[name]) for name in pairs] for row in table]).T
    return np.asarray(np.maximum.accumulate(np.arange(delay_s.shape[1]) + delay_s, axis=1))


@dataclass(frozen=True)
class TimedStep:
    """A real agent step: its type and how long it took, in seconds."""

    name: str
    duration_s: float


def agent_steps() -> list[TimedStep]:
    """5,544 real steps in order; 78 of them ran into a limit of 300 s."""
    day_s = 86_400
    return [
        TimedStep(row["name"], (float(row["end_s"]) - float(row["start_s"])) % day_s)
        for row in _rows("agents/super_step_timings.csv.zst")
    ]
