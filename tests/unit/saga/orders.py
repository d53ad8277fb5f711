"""A run that reserves, pays, ships and notifies, and what is needed to take it back."""

from __future__ import annotations

import msgspec
from tests.unit.core.log import Log, handoffs, plan_of, step

from dalsegno.schemas.events import (
    EffectConfirmed,
    EffectIntended,
    FailureType,
    StepFailed,
)
from dalsegno.schemas.outputs import Handoff
from dalsegno.schemas.plan import OnFailure, Plan, RetryPolicy, StepPlan, StepRole
from dalsegno.streams.core.actions import Output
from dalsegno.streams.core.effects import effect_key, recovery_key

ONCE = RetryPolicy(max_attempts=1, max_infra_attempts=1, initial_ms=500, max_ms=500)
TWICE = RetryPolicy(max_attempts=2, max_infra_attempts=2, initial_ms=500, max_ms=500)


def undo(name: str, **fields: object) -> StepPlan:
    """A compensation."""
    return step(name, role=StepRole.COMPENSATION, retry=TWICE, **fields)


def order(**fields: object) -> Plan:
    """reserve > (pay, pack) > ship, and notify, which has no way back."""
    return plan_of(
        step("reserve", writes=("reservation",), compensate="release", retry=ONCE),
        step("pay", needs=("reserve",), writes=("payment",), compensate="refund", retry=ONCE),
        step("pack", needs=("reserve",), compensate="unpack", retry=ONCE),
        step("ship", needs=("pay", "pack"), compensate="recall", retry=ONCE),
        step("notify", needs=("ship",), retry=ONCE),
        undo("release"),
        undo("refund"),
        undo("unpack"),
        undo("recall"),
        **{"on_failure": OnFailure.COMPENSATE, **fields},
    )


def intend(
    log: Log, name: str, effect: str = "act", epoch: int = 1, occurrence: int = 0, **more: object
) -> list[Output]:
    """An attempt is about to act."""
    key = effect_key(recovery_key("r", name), effect, occurrence)
    event = EffectIntended(
        run_id="r", step=name, epoch=epoch, effect=effect, occurrence=occurrence, key=key
    )
    return log.put(msgspec.structs.replace(event, **more))


def confirm(
    log: Log, name: str, effect: str = "act", epoch: int = 1, occurrence: int = 0
) -> list[Output]:
    """An attempt has acted."""
    return log.put(
        EffectConfirmed(
            run_id="r",
            step=name,
            epoch=epoch,
            effect=effect,
            occurrence=occurrence,
            result=msgspec.msgpack.encode({"done": name}),
        )
    )


def acted(log: Log, name: str, epoch: int = 1, **more: object) -> None:
    """An attempt has begun and done its one effect."""
    log.began(name, epoch)
    intend(log, name, epoch=epoch, **more)
    confirm(log, name, epoch=epoch)


def did(log: Log, name: str, field: str = "", epoch: int = 1) -> list[Output]:
    """A step begins, does its one effect and completes."""
    acted(log, name, epoch)
    return log.done(name, epoch, ops=[["set", [field], name]] if field else [])


def failed(
    log: Log, name: str, kind: FailureType = FailureType.PERMANENT, epoch: int = 1
) -> list[Output]:
    """A running attempt fails."""
    return log.put(
        StepFailed(
            run_id="r",
            step=name,
            epoch=epoch,
            failure_type=kind,
            error_class="declined",
            message="the bank says no",
        )
    )


def until_paid(log: Log, **fields: object) -> None:
    """Starts an order and goes on until ship is out; everything before it is done."""
    log.start(order(**fields))
    did(log, "reserve", "reservation")
    did(log, "pay", "payment")
    did(log, "pack")


def given(outputs: list[Output]) -> list[str]:
    """The steps that were given out, in their order."""
    return [handoff.step for handoff in handoffs(outputs)]


def handoff_of(outputs: list[Output], name: str) -> Handoff:
    """The handoff of one step."""
    return next(handoff for handoff in handoffs(outputs) if handoff.step == name)


def take_back(log: Log, name: str, epoch: int = 1) -> list[Output]:
    """A compensation runs and completes."""
    log.began(name, epoch)
    return log.done(name, epoch, ops=[])
