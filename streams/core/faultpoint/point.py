"""One fault point: a breaker, a window, and the quotas of the partitions. Rules:

* healthy: no permits needed, no hop, no event. 5 failures in a row: open. Attempts that are slow in
  a row, though none fails: ramping. A partition waits all the same (our state was lost meanwhile):
  ramping.
* open: nothing goes. When its time is over and, if a health check is declared, one has just passed:
  half open.
* half open: one permit, the probe's, to one partition. It succeeds: ramping. It fails, or its lease
  lapses: open, for longer.
* ramping: permits as the window says, from 1 on. 5 failures in a row: open. All demand met for a
  while: healthy.
* An outcome counts only in the phase that it belongs to: reports of a partition that had not seen
  the present phase say nothing about it.
* By hand: `open` holds it open, `close` begins to ramp, `limit` caps the window and keeps the fault
  point from being healthy while it is set.
* A log in which no time passed for long means that the service stood still: windows begin small.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from dalsegno.streams.core.faultpoint.settings import PointSettings
from dalsegno.streams.core.faultpoint.sides import Side
from dalsegno.streams.core.faultpoint.window import Window

HAND_KEPT: Final = 8
_NUMBER_BITS: Final = 12


def given_ms(number: int) -> int:
    """When an order was given, by the log time of the faults topic: its number says it."""
    return number >> _NUMBER_BITS


class Phase(StrEnum):
    """Where a fault point stands."""

    HEALTHY = "healthy"
    OPEN = "open"
    HALF_OPEN = "half_open"
    RAMPING = "ramping"


class Hand(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What a person did, when and why. `limit`: for a limit."""

    request_id: str
    action: str
    limit: int
    decided_by: str
    reason: str
    at_ms: int


class Probe(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The one permit of a half-open breaker: whose it is, and until when."""

    partition: int
    number: int
    since_ms: int
    lapses_ms: int


class FaultPoint(msgspec.Struct, array_like=True, kw_only=True):
    """The state of one fault point, all of it. Times are log times of the faults topic.

    `number`: the last one given to a state or a quota, growing; `entered`: that of the present
    phase; `since`: from which on outcomes count. `in_a_row`: failures since the last success.
    `openings`, `open_ms`: in a row, and how long the last was; open until `until_ms`, `timed` while
    that is to come. `healthy_ms`: when a health check last passed. `calm_ms`: since when all demand
    has been met (0: it is not). `hands`: the last controls by hand; `hand_number`: of the last one.
    """

    name: str
    phase: Phase = Phase.HEALTHY
    number: int = 0
    entered: int = 0
    since: int = 0
    in_a_row: int = 0
    openings: int = 0
    open_ms: int = 0
    until_ms: int = 0
    timed: bool = False
    retry_after_ms: int = 0
    quiet_ms: int = 0
    probe: Probe | None = None
    window: Window = msgspec.field(default_factory=Window)
    baseline_ms: int = 0
    calm_ms: int = 0
    checked: bool = False
    health_number: int = -1
    healthy_ms: int = -1
    health_detail: str = ""
    held_open: bool = False
    limit: int = 0
    hands: list[Hand] = []
    hand_number: int = 0
    sides: dict[int, Side] = {}
    changed_ms: int = 0
    reason: str = ""
    error_class: str = ""
    failures: int = 0
    successes: int = 0

    @property
    def size(self) -> int:
        """Attempts that may be out at once while it ramps."""
        return min(self.window.permits, self.limit) if self.limit else self.window.permits

    @property
    def out(self) -> int:
        """Permits in use, in hand or on their way, over all partitions."""
        return sum(side.out for side in self.sides.values())

    @property
    def waiting(self) -> int:
        """Steps that wait, as the partitions last said."""
        return sum(side.waiting for side in self.sides.values())

    def side(self, partition: int) -> Side:
        """The account of a partition."""
        found = self.sides.get(partition)
        if found is None:
            found = self.sides[partition] = Side()
        return found

    def next_number(self, now_ms: int) -> int:
        """A number above all before it, even if the state was lost meanwhile: it follows the log's
        clock.
        """
        self.number = max(self.number + 1, now_ms << _NUMBER_BITS)
        return self.number

    def ready_to_probe(self, now_ms: int, s: PointSettings) -> bool:
        """Whether an open breaker may be tried: its time is over, and the health check agrees."""
        if self.held_open or now_ms < self.until_ms:
            return False
        fresh_ms = max(self.changed_ms, now_ms - s.health_fresh_ms)
        return not self.checked or self.healthy_ms >= fresh_ms
