"""A log of one partition with a hand on its fault points."""

from __future__ import annotations

import msgspec
from tests.unit.core.log import Log, chain, handoffs

from dalsegno.schemas.control import BreakerState, FaultPointChanged, QuotaGranted
from dalsegno.schemas.events import FailureType, StepFailed
from dalsegno.schemas.outputs import FaultReport, Handoff
from dalsegno.streams.core.actions import Output, ReportFault

LEASE_MS = 10_000


def reports(outputs: list[Output]) -> list[FaultReport]:
    return [o.action.report for o in outputs if isinstance(o.action, ReportFault)]


class PointLog(Log):
    """A log with a hand on the fault points."""

    number = 0

    def state(
        self, state: BreakerState = BreakerState.OPEN, window: int = 1, point: str = "pay"
    ) -> list[Output]:
        """The actor says where a point stands."""
        self.number = max(self.number + 1, self.now_ms << 12)
        return self.put(
            FaultPointChanged(
                partition=0, number=self.number, fault_point=point, state=state, window=window
            )
        )

    def healthy(self, point: str = "pay") -> list[Output]:
        """The point is healthy again."""
        return self.state(BreakerState.CLOSED, 0, point)

    def grant(self, permits: int, point: str = "pay", lease_ms: int = LEASE_MS) -> list[Handoff]:
        """Permits come; returns what they let go."""
        self.number = max(self.number + 1, self.now_ms << 12)
        return handoffs(
            self.put(
                QuotaGranted(
                    partition=0, number=self.number, fault_point=point, permits=permits,
                    lease_ms=lease_ms,
                )
            )
        )  # fmt: skip

    def fail(self, run_id: str, epoch: int = 1, name: str = "s0", **fields: object) -> list[Output]:
        """An attempt begins, and fails by its dependency."""
        self.began(name, epoch, run_id)
        event = StepFailed(
            run_id=run_id, step=name, epoch=epoch, failure_type=FailureType.DEPENDENCY,
            error_class="http_503",
        )  # fmt: skip
        return self.put(msgspec.structs.replace(event, **fields))

    def runs(self, count: int, *depends_on: str, first: int = 0) -> list[Handoff]:
        """Runs of one step each; returns what was given out."""
        given = []
        for number in range(first, first + count):
            self.now_ms += 1
            given += handoffs(self.start(chain(1, depends_on=depends_on), f"r{number}"))
        return given

    def later(self, ms: int) -> list[Output]:
        """Time passes, and a tick comes."""
        self.now_ms += ms - 1_000
        return self.tick()
