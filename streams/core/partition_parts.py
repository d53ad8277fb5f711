"""The partition's own part, and whose a part is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from dalsegno.schemas.control import Policy
from dalsegno.streams.core.faultpoint.points import PointsPart
from dalsegno.streams.core.recovery.state import RecoveryPart
from dalsegno.streams.core.state_codec import StateCorrupt, run_of
from dalsegno.streams.core.tombstones import TOMBSTONE_KEY

PARTITION_KEY: Final = b"\0partition"
# Of what a step type usually takes: with the type's name behind it.
ESTIMATE_KEY: Final = b"e"
OWN_FORMAT: Final = 1


class PartitionPart(msgspec.Struct, array_like=True, kw_only=True):
    """The partition's own part. `outputs`: dense counts. `numbers`: of monotone kinds."""

    format: int
    position: int
    log_ms: int
    live_ms: int
    anchor_ms: int
    rules: int
    policy: Policy
    policy_number: int
    counts: list[int]
    waiting: int
    outputs: list[tuple[str, int]]
    numbers: list[tuple[str, int]]
    recovery: RecoveryPart | None = None
    points: PointsPart | None = None


_own_part = msgspec.msgpack.Decoder(PartitionPart)


def read_own_part(number: int, data: bytes) -> PartitionPart:
    """Raises `StateCorrupt`."""
    try:
        own = _own_part.decode(data)
    except msgspec.MsgspecError as error:
        raise StateCorrupt(f"partition {number}: {error}") from error
    if own.format != OWN_FORMAT:
        raise StateCorrupt(f"state of format {own.format}; this code reads {OWN_FORMAT}")
    return own


@dataclass(slots=True)
class SortedParts:
    """Parts by whose they are; of runs by their id, `others` without the header."""

    own: bytes | None = None
    headers: dict[str, bytes] = field(default_factory=dict)
    others: dict[str, list[tuple[bytes, bytes]]] = field(default_factory=dict)
    plans: list[tuple[bytes, bytes]] = field(default_factory=list)
    estimates: list[tuple[str, bytes]] = field(default_factory=list)
    tombstones: list[tuple[bytes, bytes]] = field(default_factory=list)


def sort_parts(parts: Iterable[tuple[bytes, bytes]]) -> SortedParts:
    """Without decoding any."""
    out = SortedParts()
    for key, value in parts:
        kind = key[:1]
        if kind == b"r":
            out.headers[key[1:].decode()] = value
        elif kind == b"p":
            out.plans.append((key[1:], value))
        elif kind == ESTIMATE_KEY:
            out.estimates.append((key[1:].decode(), value))
        elif kind == TOMBSTONE_KEY:
            out.tombstones.append((key[1:], value))
        elif key == PARTITION_KEY:
            out.own = value
        else:
            out.others.setdefault(run_of(key)[0], []).append((key, value))
    return out
