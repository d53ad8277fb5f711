"""Records of a topic as a payload: all of them come back, or none does.

The payload begins with their number, so a tail that is lost is noticed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import msgspec


class RecordsCorrupt(Exception):  # noqa: N818 - what it is
    """A payload that is not the records that its entry says."""


class Kept(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """One record as it stood in its topic. Names of headers are bytes, as they came: not all are
    text. `value` None: it was erased.

    Then `outcome` and `kind` say what it was to the fold, so that counts still hold.
    """

    offset: int
    at_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes], ...] = ()
    kind: str = ""
    outcome: str = ""


class _Payload(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    count: int
    records: tuple[Kept, ...]


_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder(_Payload).decode


def pack_records(records: Sequence[Kept]) -> bytes:
    """The payload. Offsets must grow; raises `ValueError`."""
    for before, after in pairwise(records):
        if after.offset <= before.offset:
            raise ValueError(f"offset {after.offset} behind {before.offset}")
    return _pack(_Payload(len(records), tuple(records)))


def unpack_records(payload: bytes, count: int, first: int, last: int) -> tuple[Kept, ...]:
    """Exactly these records; the first may stand behind `first`, where there was none. Raises
    `RecordsCorrupt`.
    """
    try:
        found = _unpack(payload)
    except msgspec.MsgspecError as error:
        raise RecordsCorrupt(str(error)) from error
    records = found.records
    if not found.count == len(records) == count:
        raise RecordsCorrupt(f"{len(records)} records, {count} are expected")
    offsets = [each.offset for each in records]
    if sorted(set(offsets)) != offsets:
        raise RecordsCorrupt("its offsets do not grow")
    if records and (offsets[0] < first or offsets[-1] != last):
        detail = f"offsets {offsets[0]} to {offsets[-1]}, {first} to {last} are expected"
        raise RecordsCorrupt(detail)
    return records
