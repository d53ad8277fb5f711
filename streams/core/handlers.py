"""Which function applies which event to a run, and which events are one-shot by an id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from dalsegno.schemas.control import DecisionMade, RunControl, StallSuspected
from dalsegno.schemas.events import (
    AttemptEvent,
    EffectConfirmed,
    EffectIntended,
    InformationSupplied,
    PlanExtended,
    RiskFlagged,
    RunCancelled,
    RunEvent,
    RunPaused,
    RunResumed,
    StepCompleted,
    StepFailed,
    StepProgressed,
    StepReleased,
    StepStarted,
)
from dalsegno.streams.core.attempts import step_progressed, step_started
from dalsegno.streams.core.completing import step_completed
from dalsegno.streams.core.giving_back import step_released
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
from dalsegno.streams.core.people.decisions import decision_made
from dalsegno.streams.core.routing import step_failed
from dalsegno.streams.core.verdicts import stall_suspected


class Kind(msgspec.Struct, frozen=True):
    """How an event of a run is applied. `of_step`: it names a step and an epoch."""

    name: str
    apply: Callable[..., Ruling]
    of_step: bool = False
    one_shot: bool = False


def _of_step(event: type, apply: Callable[..., Ruling]) -> Kind:
    return Kind(event.__name__, apply, of_step=True)


def _one_shot(event: type, apply: Callable[..., Ruling]) -> Kind:
    return Kind(event.__name__, apply, one_shot=True)


KINDS: Final[dict[type, Kind]] = {
    StepStarted: _of_step(StepStarted, step_started),
    StepProgressed: _of_step(StepProgressed, step_progressed),
    StepCompleted: _of_step(StepCompleted, step_completed),
    StepFailed: _of_step(StepFailed, step_failed),
    StepReleased: _of_step(StepReleased, step_released),
    EffectIntended: _of_step(EffectIntended, effect_intended),
    EffectConfirmed: _of_step(EffectConfirmed, effect_confirmed),
    StallSuspected: _of_step(StallSuspected, stall_suspected),
    InformationSupplied: _one_shot(InformationSupplied, information_supplied),
    PlanExtended: _one_shot(PlanExtended, plan_extended),
    RiskFlagged: _one_shot(RiskFlagged, risk_flagged),
    RunPaused: _one_shot(RunPaused, run_paused),
    RunResumed: _one_shot(RunResumed, run_resumed),
    RunCancelled: _one_shot(RunCancelled, run_cancelled),
    DecisionMade: _one_shot(DecisionMade, decision_made),
}


def step_and_epoch(event: object) -> tuple[str, int]:
    """The step and epoch that an event names, if it is about a step."""
    if isinstance(event, AttemptEvent):
        return event.step, event.epoch
    if isinstance(event, StallSuspected):
        return event.step, event.epoch
    if isinstance(event, DecisionMade):
        return event.step, 0
    return "", 0


def actor_of(event: RunEvent | RunControl) -> str:
    """Who is on record for an event: for a decision the person, not the tool."""
    return event.decided_by if isinstance(event, DecisionMade) else event.source


def request_id(event: object) -> str:
    """The one-shot id of an event, with its kind; empty for events that have none."""
    if isinstance(event, RunPaused | RunResumed | RunCancelled):
        return f"{type(event).__name__}:{event.request_id}"
    if isinstance(event, PlanExtended):
        return f"PlanExtended:{event.extension_id}"
    if isinstance(event, InformationSupplied):
        return f"InformationSupplied:{event.information_id}"
    if isinstance(event, DecisionMade):
        return f"DecisionMade:{event.decision_id}"
    if isinstance(event, RiskFlagged):
        return f"RiskFlagged:{event.flag_id}"
    return ""
