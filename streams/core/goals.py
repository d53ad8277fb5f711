"""What a run is for, in the words of its plan."""

from __future__ import annotations

from typing import Final

from dalsegno.schemas.plan import StepRole
from dalsegno.streams.core.plan import CompiledPlan
from dalsegno.streams.core.runstate import RunHead

_CHARS_MAX: Final = 512


def run_goal(plan: CompiledPlan, head: RunHead) -> str:
    """Goal of the run: flow, and the goals of the steps that it ends with."""
    last = [
        step.goal or step.name
        for place, step in enumerate(plan.steps)
        if not plan.dependents[place] and step.role is StepRole.FORWARD
    ]
    said = "; ".join(last)
    if len(said) > _CHARS_MAX:
        said = said[: _CHARS_MAX - 1] + "…"
    return f"{head.flow} (version {head.flow_version}): {said}"
