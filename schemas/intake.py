"""Decides of one record of the events topic whether it is an event, before the fold sees it. Pure.

The checks, in order; the first that fails names the refusal:

1. frame, schema, body, size (`dalsegno.schemas.codec`); a schema id of a registry only as listed
2. the schema is in force by the policy
3. the kind belongs on the events topic
4. control kinds: a MAC that verifies; decisions also the signature of who decided
5. the record is in the partition of its run, or in the one that its body names
6. the key is the run id
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dalsegno.schemas import codec, headers
from dalsegno.schemas.confluent import MAGIC, Ids
from dalsegno.schemas.control import (
    ControlEvent,
    DecisionKey,
    DecisionMade,
    PartitionControl,
    RegistryId,
    RunControl,
)
from dalsegno.schemas.errors import DecodeError, Fault, SchemaMissing
from dalsegno.schemas.events import RunEvent
from dalsegno.schemas.in_force import FINGERPRINT, InForce
from dalsegno.schemas.kinds import KINDS
from dalsegno.schemas.mac import Keyring
from dalsegno.schemas.partitioner import partition_for
from dalsegno.schemas.signing import Verify, check_decision

Headers = Iterable[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a record is not an event here. `run_id`, `kind`: as far as the bytes say, else empty."""

    reason: str
    detail: str
    run_id: str = ""
    kind: str = ""


class Intake:
    """Reads records of one events topic."""

    def __init__(
        self, topic: str, partition_count: int, keyring: Keyring, verify: Verify | None = None
    ) -> None:
        """`verify` checks Ed25519 signatures of decisions; without it their partition stops."""
        self._topic = topic
        self._verify_signature = verify
        self._count = partition_count
        self._keyring = keyring
        self._in_force = InForce()
        self._ids = Ids(())

    def read(
        self,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        *,
        schemas: tuple[bytes, ...] = (),
        mac_keys: tuple[str, ...] = (),
        registry_ids: tuple[RegistryId, ...] = (),
        decision_keys: tuple[DecisionKey, ...] = (),
    ) -> RunEvent | ControlEvent | Refusal:
        """The event, or why it is none. `schemas`, `mac_keys`: the policy's lists, empty for all
        known. `registry_ids`: the ids of the Confluent wire format that it lists; empty: not read.
        `decision_keys`: those who may decide by the policy.

        Raises `KeyMissing` or `SchemaMissing` when the policy lists what this process lacks: the
        partition stops at this record.
        """
        value = value or b""
        if registry_ids and value.startswith(MAGIC):
            try:
                value = self._from_confluent(value, schemas, registry_ids)
            except DecodeError as error:
                return Refusal(error.fault, str(error))
        run_id = ""
        try:
            self._in_force.check(value, schemas)
            event = codec.decode(value)
            if isinstance(event, RunEvent):
                run_id = event.run_id
                self._run_key(partition, key, run_id)
                return event
            if isinstance(event, RunControl):
                run_id = event.run_id
            self._control(partition, key, value, found=headers, event=event, mac_keys=mac_keys)
            if isinstance(event, DecisionMade):
                signature = _only(headers)
                check_decision(
                    event,
                    self._topic,
                    value,
                    signature,
                    keys=decision_keys,
                    verify=self._verify_signature,
                )
        except DecodeError as error:
            return Refusal(error.fault, str(error), run_id, codec.kind_of(value))
        return event  # type: ignore[return-value]  # _control refuses every other class

    def _from_confluent(
        self, value: bytes, schemas: tuple[bytes, ...], registry_ids: tuple[RegistryId, ...]
    ) -> bytes:
        """The run event in single-object encoding, under the fingerprint that its id stands for."""
        if registry_ids is not self._ids.listed:
            self._ids = Ids(registry_ids)
        whole = self._ids.single_object(value)
        kind = codec.kind_of(whole)
        if not kind and not schemas:
            raise SchemaMissing(whole[FINGERPRINT])
        if kind and not issubclass(KINDS[kind], RunEvent):
            raise DecodeError(
                Fault.NOT_AN_EVENT, f"{kind} is no run event: it comes in single-object encoding"
            )
        return whole

    def _control(
        self,
        partition: int,
        key: bytes | None,
        value: bytes,
        *,
        found: Headers,
        event: object,
        mac_keys: tuple[str, ...],
    ) -> None:
        if not isinstance(event, RunControl | PartitionControl):
            raise DecodeError(
                Fault.NOT_AN_EVENT, f"{type(event).__name__} does not belong on the events topic"
            )
        self._verify(partition, value, found, mac_keys)
        if isinstance(event, RunControl):
            self._run_key(partition, key, event.run_id)
        elif isinstance(event, PartitionControl) and event.partition != partition:
            raise DecodeError(
                Fault.WRONG_PARTITION, f"in partition {partition}, its body names {event.partition}"
            )

    def _run_key(self, partition: int, key: bytes | None, run_id: str) -> None:
        if key != run_id.encode():
            raise DecodeError(Fault.WRONG_KEY, f"key {key!r:.80} is not the run id {run_id!r:.80}")
        right = partition_for(run_id, self._count)
        if partition != right:
            raise DecodeError(
                Fault.WRONG_PARTITION,
                f"run {run_id!r:.80} belongs to partition {right} of {self._count}, "
                f"not {partition}: set the producer's partitioner to murmur2",
            )

    def _verify(
        self, partition: int, value: bytes, found: Headers, mac_keys: tuple[str, ...]
    ) -> None:
        macs = [mac for name, mac in found if name == headers.MAC]
        if len(macs) != 1 or macs[0] is None:
            raise DecodeError(Fault.NO_MAC, f"{len(macs)} {headers.MAC} headers, expected one")
        self._keyring.verify(macs[0], self._topic, partition, value, mac_keys)


def _only(found: Headers) -> bytes | None:
    """The signature, where there is exactly one."""
    signatures = [value for name, value in found if name == headers.SIGNATURE]
    return signatures[0] if len(signatures) == 1 else None
