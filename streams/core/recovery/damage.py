"""What a run has suffered, from the first lost attempt until every hurt step has completed."""

from __future__ import annotations

import msgspec

from dalsegno.streams.core.recovery.order import Standing


class Damage(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """In the run's header while it is damaged. Milliseconds, log time.

    `since_ms`: of the first loss, or when a step was first held. `work_ms`: estimated work that
    remains. `expected_ms`: the critical path as estimated then. `hurt`: steps with a `Repair`, that
    is, not mended yet. `lost`: attempts lost so far. `plan`: digest of the plan that is
    followed. `predicted_ms`: how long that plan said it would take.
    """

    since_ms: int
    work_ms: int
    expected_ms: int
    hurt: int = 0
    lost: int = 0
    plan: bytes = b""
    predicted_ms: int = 0

    @property
    def standing(self) -> Standing:
        """Where the run stands among those that wait."""
        return Standing(self.since_ms, self.work_ms, self.expected_ms)

    def followed(self, kept: int, left: int) -> str:
        """What the transition of the first loss says of the plan that is followed."""
        return (
            f"recovery plan {self.plan.hex()}: {kept} steps kept, {left} to do,"
            f" predicted {self.predicted_ms} ms"
        )

    def turned_out(self, now_ms: int) -> str:
        """What the transition that ends the recovery says of how it turned out."""
        return (
            f"recovery plan {self.plan.hex()}: whole after {now_ms - self.since_ms} ms, predicted"
            f" {self.predicted_ms} ms, {self.lost} attempts lost"
        )
