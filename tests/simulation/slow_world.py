"""A dependency that becomes slow and never fails, in small worlds: it is noticed, and limited.

Shards crash and restore meanwhile; reports and orders are delayed and repeated as in `storms`.
"""

from __future__ import annotations

import random
from typing import Self

from tests.simulation.promises import BrokenPromiseError
from tests.simulation.storm_shards import Shard
from tests.simulation.storms import StormWorld

from dalsegno.schemas.control import Policy, PolicySet
from dalsegno.schemas.events import RunStarted
from dalsegno.schemas.outputs import Handoff
from dalsegno.schemas.plan import Plan, StepPlan
from dalsegno.streams.core.faultpoint.point import FaultPoint, Phase
from dalsegno.streams.core.faultpoint.slowness import AFTER, STREAK

NAME = "scan"
QUICK_MS = (20, 80)
# Slow at once, and slower still: what it takes by then is learned meanwhile.
SLOW_MS = (420, 900)
# From the last attempt that a streak needs until every shard has heard what came of it.
HEARD_MS = 1_500


class SlowWorld(StormWorld):
    """One dependency, steps of one kind, and a time in which each takes ten times as long."""

    def _plan(self, draw: random.Random) -> None:
        self.slow_ms = (draw.randint(6_000, 8_000), draw.randint(16_000, 18_000))
        self.slow_ends: dict[int, list[tuple[int, int]]] = {}
        self.limited_ms: list[int] = []
        policy = Policy(quota_lease_ms=2_500, redispatch_max_ms=4_000)
        for shard in self.shards:
            shard.append(PolicySet(partition=shard.number, number=1, policy=policy))
        self._to_actor(PolicySet(partition=0, number=1, policy=policy))
        for number in range(150 * len(self.shards)):
            shard = self.shards[number % len(self.shards)]
            run_id = f"run-{number}"
            self.runs.append((shard.number, run_id))
            self.depends_on[run_id, "s"] = (NAME,)
            step = StepPlan(name="s", depends_on=(NAME,), queue="default")
            start = RunStarted(
                run_id=run_id, flow="f", flow_version=1, plan=Plan(steps=(step,)),
                context=b"\x80", ttl_ms=86_400_000,
            )  # fmt: skip
            self.time.after(draw.randint(0, 20_000), lambda s=shard, e=start: s.append(e))  # type: ignore[misc]
        self.time.after(0, self._beat)
        for _ in range(draw.randint(0, 6)):
            self.time.after(draw.randint(0, 20_000), self._crash)
        for shard in self.shards:
            if draw.random() < 0.7:
                self.time.after(
                    self.slow_ms[0] + draw.randint(800, 2_500),
                    lambda s=shard: _moves(s),  # type: ignore[misc]
                )

    @property
    def is_slow(self) -> bool:
        """Whether what begins now takes long."""
        return self.slow_ms[0] <= self.time.now_ms < self.slow_ms[1]

    def span_ms(self) -> int:
        """Quick or slow, as the time is."""
        return self.time.random.randint(*(SLOW_MS if self.is_slow else QUICK_MS))

    def _end(self, shard: Shard, handoff: Handoff, broken: str | None) -> None:
        super()._end(shard, handoff, broken)
        if not self.is_slow:
            return
        began_ms = self.arrivals[NAME][-1]
        if self.time.now_ms - self.slow_ms[0] > SLOW_MS[1]:
            self.slow_ends.setdefault(shard.number, []).append((began_ms, self.time.now_ms))

    def _count(self) -> None:
        super()._count()
        point: FaultPoint | None = self.actors.points.get(NAME)
        if point is not None and point.phase is Phase.RAMPING:
            self.limited_ms.append(self.time.now_ms)
        if point is not None and point.phase in (Phase.OPEN, Phase.HALF_OPEN):
            raise BrokenPromiseError("it never failed, and its breaker opened")

    def run(self) -> Self:
        """To the end, and judge it: what was slow for long enough was limited while it was."""
        super().run()
        for ends in self.slow_ends.values():
            if len(ends) < STREAK + AFTER:
                continue
            noticed_ms = ends[STREAK + AFTER - 1][1] + HEARD_MS
            if noticed_ms < self.slow_ms[1] and not any(
                self.slow_ms[0] <= at < noticed_ms for at in self.limited_ms
            ):
                raise BrokenPromiseError(f"slow since {self.slow_ms[0]} ms, and never limited")
        if any(at < self.slow_ms[0] for at in self.limited_ms):
            raise BrokenPromiseError("limited before it was slow")
        return self


def _moves(shard: Shard) -> None:
    """Its owner stops in the middle of what it has seen, and the next one goes on from there."""
    shard.checkpoint()
    shard.crash()
