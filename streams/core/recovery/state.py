"""What recovery keeps for a partition, beside what is in its runs."""

from __future__ import annotations

import msgspec

from dalsegno.streams.core.recovery.estimates import Estimates
from dalsegno.streams.core.recovery.freezing import Freeze, Freezes
from dalsegno.streams.core.recovery.holding import PACED, Holds
from dalsegno.streams.core.recovery.pacing import Pace


class RecoveryPart(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """In the partition's own part. Lines are derived from the rows; their balances are not."""

    freezes: list[Freeze]
    pace: Pace
    balances: list[tuple[str, int]]


class Recovery:
    """Estimates, lines of held steps, freezes and the pace of one partition."""

    __slots__ = ("estimates", "freezes", "holds", "pace")

    def __init__(self) -> None:
        self.estimates = Estimates()
        self.holds = Holds()
        self.freezes = Freezes()
        self.pace = Pace()

    def next_ms(self, now_ms: int, width_max: int) -> int:
        """The next log time at which something held may go by itself."""
        due = self.freezes.next_ms
        if self.holds.waiting(PACED):
            due = min(due, self.pace.next_ms(now_ms, width_max))
        return due

    def pack(self) -> RecoveryPart:
        """For the partition's own part."""
        return RecoveryPart(self.freezes.pack(), self.pace, self.holds.balances())

    def load(self, part: RecoveryPart) -> None:
        """What `pack` gave. Before the rows that are held are put in."""
        self.freezes.load(part.freezes)
        self.pace = part.pace
        self.holds.load_balances(part.balances)
