"""Which function applies which event to a run, and which events are one-shot by an id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dalsegno.schemas.control import StallSuspected
from dalsegno.schemas.events import (
    EffectConfirmed,
    EffectIntended,
    InformationSupplied,
    PlanExtended,
    RiskFlagged,
    RunCancelled,
    RunPaused,
    RunResumed,
    StepCompleted,
    StepFailed,
    StepProgressed,
    StepReleased,
    StepStarted,
)
from dalsegno.streams.core.attempts import step_progressed, step_released, step_started
from dalsegno.streams.core.completing import step_completed
from dalsegno.streams.core.information import information_supplied
from dalsegno.streams.core.journal import effect_confirmed, effect_intended
from dalsegno.streams.core.lifecycle import (
    plan_extended,
    risk_flagged,
    run_cancelled,
    run_paused,
    run_resumed,
)
from dalsegno.streams.core.moment import Ruling
from dalsegno.streams.core.routing import step_failed
from dalsegno.streams.core.verdicts import stall_suspected

HANDLERS: Final[dict[type, Callable[..., Ruling]]] = {
    StepStarted: step_started,
    StepProgressed: step_progressed,
    StepCompleted: step_completed,
    StepFailed: step_failed,
    StepReleased: step_released,
    EffectIntended: effect_intended,
    EffectConfirmed: effect_confirmed,
    InformationSupplied: information_supplied,
    PlanExtended: plan_extended,
    RiskFlagged: risk_flagged,
    RunPaused: run_paused,
    RunResumed: run_resumed,
    RunCancelled: run_cancelled,
    StallSuspected: stall_suspected,
}


def request_id(event: object) -> str:
    """The one-shot id of an event, with its kind; empty for events that have none."""
    if isinstance(event, RunPaused | RunResumed | RunCancelled):
        return f"{type(event).__name__}:{event.request_id}"
    if isinstance(event, PlanExtended):
        return f"PlanExtended:{event.extension_id}"
    if isinstance(event, InformationSupplied):
        return f"InformationSupplied:{event.information_id}"
    if isinstance(event, RiskFlagged):
        return f"RiskFlagged:{event.flag_id}"
    return ""


ONE_SHOT: Final = frozenset(
    {RunPaused, RunResumed, RunCancelled, PlanExtended, InformationSupplied, RiskFlagged}
)
