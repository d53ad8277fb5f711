"""What is appended to the faults topic beside reports: hand controls and findings of health checks.

Both carry a MAC, like every control kind; their key is the fault point, and so is their partition.
"""

from __future__ import annotations

from enum import StrEnum

from dalsegno.schemas.control import ControlEvent


class HandAction(StrEnum):
    """What a person does to a fault point.

    `OPEN`: nothing goes until it is closed again. `CLOSE`: begin again with a window of one.
    `LIMIT`: at most so many at once, until the limit is 0 again.
    """

    OPEN = "open"
    CLOSE = "close"
    LIMIT = "limit"


class PointControl(ControlEvent, frozen=True, kw_only=True, gc=False):
    """A control kind about one fault point."""

    fault_point: str


class FaultPointSet(PointControl, frozen=True, kw_only=True, gc=False):
    """A person steers a fault point by hand. Monotone by `number` in its fault point: an older one
    that comes again undoes nothing. `request_id` names it. Who and why are kept.
    """

    request_id: str
    action: HandAction
    decided_by: str
    reason: str
    limit: int = 0
    number: int = 0


class HealthReported(PointControl, frozen=True, kw_only=True, gc=False):
    """A health check of a dependency has answered. Monotone by `number` in its fault point."""

    number: int
    healthy: bool
    took_ms: int = 0
    detail: str = ""
