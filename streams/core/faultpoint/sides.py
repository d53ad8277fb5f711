"""What each partition last said about a fault point, and the permits on their way to it."""

from __future__ import annotations

import msgspec

from dalsegno.schemas.outputs import FaultReport
from dalsegno.streams.core.faultpoint.settings import PointSettings


class Grant(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Permits that a partition has not been heard to have: they count as used until `lapses_ms`."""

    number: int
    permits: int
    lapses_ms: int


class Side(msgspec.Struct, array_like=True, gc=False):
    """One partition's account. `offset`, `index`: of its last report. `served`: number of the last
    grant to it. `told_ms`: log time of its last report.
    """

    offset: int = -1
    index: int = -1
    waiting: int = 0
    running: int = 0
    unspent: int = 0
    seen: int = 0
    told_ms: int = 0
    served: int = 0
    grants: list[Grant] = []

    @property
    def granted(self) -> int:
        """Permits on their way."""
        return sum(grant.permits for grant in self.grants)

    @property
    def out(self) -> int:
        """Permits that this partition uses, has in hand, or is about to have."""
        return self.running + self.unspent + self.granted

    @property
    def wants(self) -> int:
        """Waiting steps for which no permit is on its way."""
        return max(0, self.waiting - self.granted)

    @property
    def concerned(self) -> bool:
        """Whether the fault point's state means anything to it now."""
        return bool(self.waiting or self.out)

    def is_new(self, report: FaultReport) -> bool:
        """Whether the report is later than all before it: outputs may come twice."""
        return (report.offset, report.index) > (self.offset, self.index)

    def take(self, report: FaultReport, at_ms: int) -> None:
        """The partition's account as of this report; it has seen the grants up to `seen`."""
        self.offset, self.index = report.offset, report.index
        self.waiting = max(0, report.waiting)
        self.running = max(0, report.running)
        self.unspent = max(0, report.unspent)
        self.seen = max(self.seen, report.seen)
        self.told_ms = at_ms
        self.grants = [grant for grant in self.grants if grant.number > self.seen]

    def grant(self, number: int, permits: int, lapses_ms: int) -> None:
        """Permits were sent to it."""
        self.grants = [*self.grants, Grant(number, permits, lapses_ms)]
        self.served = number

    def lapse(self, now_ms: int, s: PointSettings) -> None:
        """Leases that have run out are nobody's, and nobody's fault. A partition that has not been
        heard of for long has no owner at the moment: what it had out has ended meanwhile.
        """
        if self.grants and any(grant.lapses_ms <= now_ms for grant in self.grants):
            self.grants = [grant for grant in self.grants if grant.lapses_ms > now_ms]
        if now_ms - self.told_ms >= s.silent_ms:
            self.running = self.unspent = 0

    def next_lapse_ms(self, s: PointSettings) -> int | None:
        """When `lapse` has something to do next."""
        times = [grant.lapses_ms for grant in self.grants]
        if self.running or self.unspent:
            times.append(self.told_ms + s.silent_ms)
        return min(times, default=None)


def share(sides: dict[int, Side], permits: int) -> dict[int, int]:
    """Permits by partition, in proportion to what each wants and never more than that.

    What the division leaves over goes one by one to those that were served longest ago. All that
    is there is given out, or all that is wanted.
    """
    wants = {number: side.wants for number, side in sorted(sides.items()) if side.wants}
    total = sum(wants.values())
    permits = min(permits, total)
    if permits <= 0:
        return {}
    given = {number: permits * want // total for number, want in wants.items()}
    left = permits - sum(given.values())
    for number in sorted(wants, key=lambda each: (sides[each].served, each)):
        if not left:
            break
        if given[number] < wants[number]:
            given[number] += 1
            left -= 1
    return {number: count for number, count in given.items() if count}
