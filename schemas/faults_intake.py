"""Decides of one record of the faults topic whether it is for the actors. Pure.

As for the events (`dalsegno.schemas.intake`), but everything here carries a MAC: reports too, since
who can report can open a breaker. The key of a report or a control is its fault point.
"""

from __future__ import annotations

from collections.abc import Iterable

from dalsegno.schemas import codec, headers
from dalsegno.schemas.control import ClockTick, PolicySet
from dalsegno.schemas.errors import DecodeError, Fault
from dalsegno.schemas.faults import PointControl
from dalsegno.schemas.in_force import InForce
from dalsegno.schemas.intake import Refusal
from dalsegno.schemas.mac import Keyring
from dalsegno.schemas.outputs import FaultReport
from dalsegno.schemas.partitioner import partition_for

FaultRecord = FaultReport | PointControl | ClockTick | PolicySet


class FaultsIntake:
    """Reads records of one faults topic."""

    def __init__(self, topic: str, partition_count: int, keyring: Keyring) -> None:
        self._topic = topic
        self._count = partition_count
        self._keyring = keyring
        self._in_force = InForce()

    def read(
        self,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        found: Iterable[tuple[str, bytes | None]] = (),
        *,
        schemas: tuple[bytes, ...] = (),
        mac_keys: tuple[str, ...] = (),
    ) -> FaultRecord | Refusal:
        """The record, or why it is none. `schemas`, `mac_keys`: the policy's lists, empty for all
        known. Raises `KeyMissing` or `SchemaMissing` for what the policy lists and this process
        lacks: the partition stops.
        """
        value = value or b""
        try:
            self._in_force.check(value, schemas)
            record = _of_this_topic(codec.decode(value))
            self._keyring.verify(_mac(found), self._topic, partition, value, mac_keys)
            self._place(partition, key, record)
        except DecodeError as error:
            return Refusal(error.fault, str(error), "", codec.kind_of(value))
        return record

    def _place(self, partition: int, key: bytes | None, record: FaultRecord) -> None:
        if isinstance(record, ClockTick | PolicySet):
            right = record.partition
        else:
            if key != record.fault_point.encode():
                raise DecodeError(Fault.WRONG_KEY, "the key is not the fault point")
            right = partition_for(record.fault_point, self._count)
        if partition != right:
            raise DecodeError(
                Fault.WRONG_PARTITION, f"in partition {partition}, it belongs to {right}"
            )


def _of_this_topic(record: object) -> FaultRecord:
    if isinstance(record, FaultReport | PointControl | ClockTick | PolicySet):
        return record
    raise DecodeError(
        Fault.NOT_AN_EVENT, f"{type(record).__name__} does not belong on the faults topic"
    )


def _mac(found: Iterable[tuple[str, bytes | None]]) -> bytes:
    macs = [mac for name, mac in found if name == headers.MAC]
    if len(macs) != 1 or macs[0] is None:
        raise DecodeError(Fault.NO_MAC, f"{len(macs)} {headers.MAC} headers, expected one")
    return macs[0]
