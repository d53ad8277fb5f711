"""Records of the faults topic as its fold takes them."""

from __future__ import annotations

from dalsegno.schemas.errors import KeyMissing, SchemaMissing
from dalsegno.schemas.faults_intake import FaultsIntake
from dalsegno.schemas.intake import Refusal
from dalsegno.streams.core.faultpoint.actors import FaultPoints
from dalsegno.streams.core.record import Record, Unreadable
from dalsegno.streams.engine.errors import PartitionStoppedError
from dalsegno.streams.engine.raw import RawEvent


def fault_record(intake: FaultsIntake, fold: FaultPoints, raw: RawEvent) -> Record:
    """What is to be applied next, read by the policy in force there.

    Raises `PartitionStoppedError` when the policy lists a key or a schema that this process lacks.
    """
    policy = fold.policy
    try:
        read = intake.read(
            fold.number,
            raw.key,
            raw.value,
            raw.headers,
            schemas=policy.schemas,
            mac_keys=policy.mac_keys,
        )
    except (KeyMissing, SchemaMissing) as error:
        reason = "key_missing" if isinstance(error, KeyMissing) else "schema_missing"
        raise PartitionStoppedError(
            fold.number, reason, f"faults offset {raw.offset}: {error}"
        ) from error
    event = Unreadable(str(read.reason), read.detail) if isinstance(read, Refusal) else read
    return Record(raw.offset, raw.timestamp, raw.key or b"", raw.value or b"", event)
