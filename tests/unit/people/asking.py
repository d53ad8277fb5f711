"""Runs that ask people, and the people's answers, for tests."""

from __future__ import annotations

import msgspec
from tests.unit.core.log import Log, escalations, pack

from dalsegno.schemas.control import DecisionMade, DecisionType
from dalsegno.schemas.events import FailureType, StepFailed
from dalsegno.schemas.outputs import Escalation
from dalsegno.streams.core.actions import Output


def failed(
    log: Log, name: str, epoch: int = 1, kind: str = FailureType.PERMANENT, **fields: object
) -> list[Output]:
    """An attempt fails; a permanent failure goes to a person."""
    event = StepFailed(
        run_id="r",
        step=name,
        epoch=epoch,
        failure_type=FailureType(kind),
        error_class="Declined",
        message="the card was declined",
    )
    return log.put(msgspec.structs.replace(event, **fields))


def asked(outputs: list[Output]) -> Escalation:
    """The one package among outputs."""
    (package,) = escalations(outputs)
    return package


def decision(package: Escalation, kind: str, ops: object = None, **fields: object) -> DecisionMade:
    """A decision as a person makes it on this package."""
    event = DecisionMade(
        run_id=package.run_id,
        decision_id=f"{kind} {package.escalation_id}",
        escalation_id=package.escalation_id,
        decision=DecisionType(kind),
        decided_by="ana",
        reason="it is right so",
        step=package.step,
        ops=b"" if ops is None else pack(ops),
        package_digest=package.package_digest,
        source="test",
    )
    return msgspec.structs.replace(event, **fields)


def decide(
    log: Log, package: Escalation, kind: str, ops: object = None, **fields: object
) -> list[Output]:
    """Appends a decision."""
    return log.put(decision(package, kind, ops, **fields))
