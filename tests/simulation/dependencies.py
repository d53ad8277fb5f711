"""The services that steps depend on: they refuse, hang, are slow or busy, and count who comes."""

from __future__ import annotations

from enum import StrEnum
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
from tests.simulation.actor_promises import UNHEARD_MS
from tests.simulation.clock import Step
from tests.simulation.promises import BrokenPromiseError

from dalsegno.schemas.outputs import Handoff
from dalsegno.streams.core.faultpoint.declared import dependency_of

if TYPE_CHECKING:
    from tests.simulation.world import World

NAMES = ("bureau", "mail", "pay")
# A window may have been this large when an attempt was let go.
WINDOW_KEPT_MS = 60_000


class Mode(StrEnum):
    """How a dependency is."""

    WELL = "well"
    REFUSES = "refuses"
    HANGS = "hangs"
    SLOW = "slow"
    BUSY = "busy"


ILLS = tuple(mode for mode in Mode if mode is not Mode.WELL)


class Ill(msgspec.Struct, frozen=True):
    """A time in which a dependency is not well."""

    since_ms: int
    until_ms: int
    mode: Mode


class Answered(msgspec.Struct, frozen=True):
    """What a caller hears. `error`: empty when all was well."""

    error: str = ""
    retry_after_ms: int | None = None


WELL = Answered()


class Dependency:
    """One service. `inside`: attempts that it serves now and that needed a permit, since when."""

    def __init__(self, world: World, name: str, rng: Random) -> None:
        self.world = world
        self.name = name
        self.ills: list[Ill] = []
        self.served_ms: list[int] = []
        self.inside: dict[tuple[str, str, int], int] = {}
        self.arrivals = 0
        start_ms, chaos_ms = world.scheduler.now_ms, world.setup.chaos_ms
        while rng.random() < world.odds.outage and len(self.ills) < 3:
            since = start_ms + rng.randrange(0, chaos_ms * 2 // 3)
            length = rng.choice((1_000, 5_000, 15_000, 60_000))
            self.ills.append(Ill(since, since + length, rng.choice(ILLS)))

    def mode(self) -> Mode:
        """How it is now; in the calm it is well."""
        if self.world.network.calm:
            return Mode.WELL
        now_ms = self.world.scheduler.now_ms
        for ill in self.ills:
            if ill.since_ms <= now_ms < ill.until_ms:
                return ill.mode
        return Mode.WELL

    def serve(self, handoff: Handoff) -> Step:
        """One call, from its arrival on; returns what its caller hears."""
        key = (handoff.run_id, handoff.step, handoff.epoch)
        self.arrive(key)
        try:
            return (yield from self.answer())
        finally:
            self.inside.pop(key, None)

    def answer(self) -> Step:
        rng = self.world.rng
        mode = self.mode()
        if mode is Mode.REFUSES:
            yield 2
            return Answered("refused")
        if mode is Mode.BUSY:
            yield rng.randrange(1, 30)
            return Answered("busy", rng.choice((300, 1_500, 4_000)))
        if mode is Mode.SLOW:
            yield rng.randrange(500, 2_500)
        elif mode is Mode.HANGS:
            if rng.random() < 0.5:
                yield 2_000
                return Answered("timed out")
            while self.mode() is Mode.HANGS:
                yield 1_000
        yield rng.randrange(5, 60)
        self.served_ms.append(self.world.scheduler.now_ms)
        return WELL

    def arrive(self, key: tuple[str, str, int]) -> None:
        """P9: those that needed a permit are no more at once than the window has been."""
        self.arrivals += 1
        if self.name not in self.world.checker.permitted.get(key, ()):
            return
        now_ms = self.world.scheduler.now_ms
        self.inside[key] = now_ms
        # One that lost its step may still be here, and nobody knows.
        known = (since for each, since in self.inside.items() if self.world.checker.is_out(*each))
        young = sum(now_ms - since < UNHEARD_MS for since in known)
        allowed = self.world.checker.window_of(self.name, now_ms - WINDOW_KEPT_MS)
        if young > allowed:
            raise BrokenPromiseError(f"P9: {young} at once at {self.name}, its window is {allowed}")

    def check_closing(self) -> None:
        """A probe has closed its breaker: then it has served somebody."""
        if not self.served_ms:
            raise BrokenPromiseError(f"P9: {self.name} closed without any success")


def of_point(dependencies: dict[str, Dependency], point: str) -> Dependency:
    """The dependency that a fault point belongs to."""
    return dependencies[dependency_of(point)]


def make(world: Any, rng: Random) -> dict[str, Dependency]:
    """All of a world."""
    return {name: Dependency(world, name, rng) for name in NAMES}
