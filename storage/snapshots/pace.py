"""After how many versions of a run its chain gets a link, from what is measured here.

What a link saves is folding again: whoever wants a version that the chain does not hold must fold
the log from the last link on, and with it the events of all other runs in between. So the work of
a step is the events between two versions of a run, times the seconds that the fold takes for one;
a failure is a chain that was found behind its run or damaged; and the cost of a snapshot is what a
link takes whatever its size.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dalsegno.storage.snapshots.cadence import STEPS_MAX, Cadence, Tick
from dalsegno.storage.snapshots.learned import LearnedCadence

TICK_S: Final = 1.0
_EVENT_S: Final = 100e-6
_LINK_S: Final = 200e-6
_EVENTS_BETWEEN: Final = 50
_GAIN: Final = 0.05


class Pace:
    """One per partition. `every`: versions between two links; `optimum`: what the closed form says,
    before a learned factor and `versions_max`.
    """

    def __init__(
        self, *, versions_max: int = STEPS_MAX, learned: bool = False, seed: int = 0
    ) -> None:
        self._versions_max = versions_max
        self._cadence = Cadence(cost=_LINK_S, step_work=_EVENT_S * _EVENTS_BETWEEN)
        self._learned = LearnedCadence(self._cadence, seed) if learned else None
        self._event_s = _EVENT_S
        self._busy_s = 0.0
        self._last_s: float | None = None
        self._sums = _Sums()
        self.optimum = self._cadence.steps(0.0)
        self.every = min(versions_max, self.optimum)

    def folded(self, events: int, took_s: float) -> None:
        """The fold applied so many events in this time."""
        self._busy_s += took_s
        if events:
            self._event_s += _GAIN * (took_s / events - self._event_s)

    def made(self, events: int) -> None:
        """A run has a new version, so many events behind the one before."""
        self._sums.steps += 1
        self._sums.work += events * self._event_s

    def failed(self, events: int) -> None:
        """A chain lacks what so many events would have to be folded again for."""
        self._sums.failures += 1
        self._sums.redone += events * self._event_s

    def took(self, links: int, fixed_s: float) -> None:
        """So many links took this time, that of their compression left out."""
        self._sums.snapshots += links
        self._sums.cost += fixed_s

    def tick(self, now_s: float, pending: int) -> bool:
        """Learns, at most once a second. `pending`: versions in no link. Whether it chose anew."""
        if self._last_s is None:
            self._last_s = now_s
        elapsed_s = now_s - self._last_s
        if elapsed_s < TICK_S:
            return False
        sums, self._sums = self._sums, _Sums()
        tick = Tick(
            steps=sums.steps,
            failures=sums.failures,
            work=sums.work,
            snapshots=sums.snapshots,
            snapshot_cost=sums.cost,
            redone=sums.redone,
        )
        load = min(1.0, self._busy_s / elapsed_s)
        self._busy_s, self._last_s = 0.0, now_s
        if self._learned is not None:
            step_work = sums.work / sums.steps if sums.steps else 0.0
            self._learned.learn(tick, pending * step_work)
            every = self._learned.steps(load)
            self.optimum = self._cadence.steps(load)
        else:
            self._cadence.learn(tick)
            every = self.optimum = self._cadence.steps(load)
        self.every = min(self._versions_max, every)
        return True


class _Sums(msgspec.Struct):
    """Since the last tick."""

    steps: int = 0
    failures: int = 0
    work: float = 0.0
    redone: float = 0.0
    snapshots: int = 0
    cost: float = 0.0
