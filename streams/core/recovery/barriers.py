"""What keeps a step from being given out that may go by its plan: the first line it must stand in.

In this order: a freeze, a fault point of the step, the pace of recovery. A step whose turn has come
in one line passes it, and may have to stand in a further one.
"""

from __future__ import annotations

from dalsegno.schemas.plan import StepRole
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.recovery.holding import PACED, POINT
from dalsegno.streams.core.rows import StepRow


def barrier(draft: Draft, place: int, row: StepRow) -> str:
    """The line that the step has to stand in, or an empty text. First attempts pass most."""
    recovery = draft.now.recovery
    step = draft.steps[place]
    again = row.epoch > 0 or step.role is StepRole.COMPENSATION
    if again and recovery.freezes:
        line = recovery.freezes.holding(draft.head.flow, step.depends_on, draft.passes)
        if line:
            return line
    points = draft.now.points
    if points.holding and step.depends_on and points.in_the_way(step.depends_on):
        # Permits are a pace of their own: who has them need not wait for the other one too.
        point = points.blocked(step.depends_on)
        return POINT + point if point else ""
    if again and draft.passes != PACED and not _in_pace(draft):
        return PACED
    return ""


def _in_pace(draft: Draft) -> bool:
    now = draft.now
    pace = now.recovery.pace
    # What this unit has given out so far is adopted with it.
    out: int = pace.in_flight + draft.head.recovering - draft.run.head.recovering
    return out < pace.width(now.log_ms, now.policy.recovery_width_max)
