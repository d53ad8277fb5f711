"""Where fault points stand, to be looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from dalsegno.schemas.control import BreakerState


class PointView(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A fault point that holds steps, as the partition last heard of it under `number`.

    `window`: attempts that may be out at once while its state is closed. `waiting`: steps it holds.
    """

    name: str
    dependency: str
    state: BreakerState
    window: int
    waiting: int
    number: int

    @property
    def lets_go(self) -> bool:
        """Whether who is not held by it may try: while it is half open, only if nobody waits who
        would have the probe.
        """
        return self.state is BreakerState.CLOSED or (
            self.state is BreakerState.HALF_OPEN and not self.waiting
        )


def newest(points: Iterable[PointView]) -> list[PointView]:
    """Of each fault point what was heard last, by name: not every partition hears everything. All
    that wait are counted together.
    """
    found: dict[str, PointView] = {}
    waiting: Counter[str] = Counter()
    for point in points:
        waiting[point.name] += point.waiting
        known = found.get(point.name)
        if known is None or point.number > known.number:
            found[point.name] = point
    return [msgspec.structs.replace(found[name], waiting=waiting[name]) for name in sorted(found)]
