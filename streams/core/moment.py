"""What a unit of the fold may know besides the run: the record, the clocks, the policy."""

from __future__ import annotations

import msgspec

from dalsegno.schemas.control import Policy
from dalsegno.schemas.outputs import Outcome
from dalsegno.streams.core.clock import Clock
from dalsegno.streams.core.faultpoint.points import Points
from dalsegno.streams.core.outbox import Outbox
from dalsegno.streams.core.plan_store import PlanStore
from dalsegno.streams.core.recovery.holding import POINT
from dalsegno.streams.core.recovery.state import Recovery


class Moment:
    """The record that is being applied, and the partition's settings as of now.

    `offset`, `at_ms` are those of the event that a unit handles; outputs go under the record that
    moved the log, which the outbox knows. `flying` counts attempts in flight in the partition.
    """

    __slots__ = (
        "at_ms",
        "clock",
        "flying",
        "offset",
        "outbox",
        "partition",
        "plans",
        "points",
        "policy",
        "policy_number",
        "recovery",
        "trace",
    )

    def __init__(self, partition: int, policy: Policy) -> None:
        self.partition = partition
        self.policy = policy
        self.policy_number = 0
        self.clock = Clock()
        self.outbox = Outbox()
        self.plans = PlanStore()
        self.recovery = Recovery()
        self.points = Points(self, self._held_by, self.recovery.estimates.settled_ms)
        self.offset = 0
        self.at_ms = 0
        self.flying = 0
        self.trace = ""

    @property
    def log_ms(self) -> int:
        """Log time."""
        return self.clock.log_ms

    def _held_by(self, point: str) -> int:
        return self.recovery.holds.waiting(POINT + point)

    def live_from_now(self, delay_ms: int) -> int:
        """A live deadline: the first attempt after a time without any starts the clock afresh."""
        if self.flying == 0:
            self.clock.take_off()
            return self.clock.live_ms + delay_ms
        return self.clock.live_now_ms(self.policy.live_cap_ms) + delay_ms


class Ruling(msgspec.Struct, frozen=True, gc=False):
    """What a handler decided about an event.

    Unless the outcome is applied, or `keeps` is set (the journal took something in), what the
    handler did to the draft is discarded. `epoch` is what superseded the reporter. `answer`: say so
    though it is no refusal. `failed`: the report was taken, and the attempt failed by it.
    """

    outcome: Outcome
    reason: str = ""
    detail: str = ""
    epoch: int = 0
    keeps: bool = False
    answer: bool = False
    failed: bool = False


APPLIED = Ruling(Outcome.APPLIED)
ACCEPTED = Ruling(Outcome.APPLIED, answer=True)


def refused(reason: str, detail: str = "") -> Ruling:
    """The event changes nothing, and its sender is told why."""
    return Ruling(Outcome.REFUSED, reason, detail)


def duplicate(reason: str = "repeated", *, answer: bool = False) -> Ruling:
    """The event was applied before. With `answer` it is answered again as it was then."""
    return Ruling(Outcome.DUPLICATE, reason, answer=answer)


def superseded(reason: str, epoch: int = 0, *, keeps: bool = False) -> Ruling:
    """The reporter lost its step, to `epoch` if there is a later one."""
    return Ruling(Outcome.SUPERSEDED, reason, epoch=epoch, keeps=keeps)
