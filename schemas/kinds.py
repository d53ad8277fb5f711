"""Every kind of record of the contract, and the topic family it belongs to."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from dalsegno.schemas import control, events, faults, liveness, outputs, package, plan

RUN_EVENTS: Final[tuple[type[events.RunEvent], ...]] = (
    events.RunStarted,
    events.PlanExtended,
    events.StepStarted,
    events.StepProgressed,
    events.StepCompleted,
    events.StepFailed,
    events.StepReleased,
    events.EffectIntended,
    events.EffectConfirmed,
    events.InformationSupplied,
    events.RiskFlagged,
    events.RunPaused,
    events.RunResumed,
    events.RunCancelled,
)
CONTROL_EVENTS: Final[tuple[type[control.ControlEvent], ...]] = (
    control.ClockTick,
    control.StallSuspected,
    control.FaultPointChanged,
    control.QuotaGranted,
    control.RecoveryFrozen,
    control.RecoveryReleased,
    control.RunRestored,
    control.PolicySet,
    control.RulesChanged,
    control.DecisionMade,
    control.ArchiveConfirmed,
    control.ErasureRequested,
    control.ErasureConfirmed,
)
FAULT_CONTROLS: Final[tuple[type[faults.PointControl], ...]] = (
    faults.FaultPointSet,
    faults.HealthReported,
)
LIVENESS: Final[tuple[type[msgspec.Struct], ...]] = (
    liveness.Heartbeat,
    liveness.Hello,
    liveness.Canary,
)
OUTPUTS: Final[tuple[type[msgspec.Struct], ...]] = (
    outputs.Handoff,
    outputs.Answer,
    outputs.Transition,
    outputs.Escalation,
    outputs.FaultReport,
    outputs.Claim,
    outputs.DeadLetter,
)


class Family(StrEnum):
    """Who writes a kind, which decides its topic and how its schemas may change."""

    RUN_EVENT = "run_event"
    CONTROL = "control"
    LIVENESS = "liveness"
    OUTPUT = "output"


KINDS: Final[dict[str, type[msgspec.Struct]]] = {
    cls.__name__: cls
    for cls in (*RUN_EVENTS, *CONTROL_EVENTS, *FAULT_CONTROLS, *LIVENESS, *OUTPUTS)
}
"""The class of each kind, by its name, in the order of the documentation."""


def family_of(kind: str) -> Family:
    """The family of a kind. Raises `KeyError` for a name that is not a kind."""
    cls = KINDS[kind]
    if cls in RUN_EVENTS:
        return Family.RUN_EVENT
    if cls in CONTROL_EVENTS or cls in FAULT_CONTROLS:
        return Family.CONTROL
    return Family.LIVENESS if cls in LIVENESS else Family.OUTPUT


def classes() -> dict[str, type]:
    """Every record and enumeration class that a schema may name, by its name."""
    return {
        name: cls
        for module in (plan, events, control, faults, liveness, package, outputs)
        for name, cls in vars(module).items()
        if isinstance(cls, type) and issubclass(cls, msgspec.Struct | StrEnum)
    }
