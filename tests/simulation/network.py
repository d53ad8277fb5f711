"""Delays and fates of messages. While `calm` is set the network is quick and loses nothing."""

from __future__ import annotations

import msgspec
from tests.simulation.clock import Scheduler


class Fate(msgspec.Struct, frozen=True, gc=False):
    """What happens to one send."""

    delay_ms: int
    lost: bool = False
    ack_lost: bool = False
    doubled: bool = False


_QUICK = tuple(Fate(delay_ms) for delay_ms in range(1, 8))


class Network:
    """`trouble_percent`: how many sends meet something worse than a short delay."""

    def __init__(self, scheduler: Scheduler, trouble_percent: float) -> None:
        self.scheduler = scheduler
        self.trouble = trouble_percent / 100
        self.calm = False

    def delay(self) -> int:
        """One way between two processes, in ms."""
        rng = self.scheduler.rng
        if not self.calm and rng.random() < self.trouble:
            return rng.randrange(20, 2_500)
        return 1 + int(rng.random() * 7)

    def fate(self) -> Fate:
        rng = self.scheduler.rng
        if self.calm or rng.random() >= self.trouble:
            return _QUICK[int(rng.random() * 7)]
        kind = rng.randrange(4)
        if kind == 0:
            return Fate(rng.randrange(50, 1_500), lost=True)
        if kind == 1:
            return Fate(rng.randrange(1, 1_500), ack_lost=True)
        if kind == 2:
            return Fate(rng.randrange(1, 300), doubled=True)
        return Fate(rng.randrange(50, 4_000))
