"""What parts of the state mean, whatever release wrote them.

A run that nothing has touched since an upgrade stays in the changelog as the release before wrote
it: without the fields that came since, of which a restore takes the defaults. So two parts are
compared once both are as this code writes them. The other way round, where a newer release was
rolled back, fields that this code does not know must say nothing.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dalsegno.streams.core.faultpoint.actors import OWN_KEY, POINT_KEY, OwnPart
from dalsegno.streams.core.faultpoint.point import FaultPoint
from dalsegno.streams.core.layouts import LAYOUTS, parts_as
from dalsegno.streams.core.partition_parts import PARTITION_KEY, PartitionPart
from dalsegno.streams.core.runstate import Waiting
from dalsegno.streams.core.state_codec import (
    KIND_RUN,
    PREFIX_BYTES,
    StateCorrupt,
    read_prefix,
    run_of,
    unpack_stub,
)
from dalsegno.streams.core.tombstones import TOMBSTONE_KEY, Tombstone

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder().decode
_OWN: Final[dict[bytes, msgspec.msgpack.Decoder[object]]] = {
    PARTITION_KEY: msgspec.msgpack.Decoder(PartitionPart),
    OWN_KEY: msgspec.msgpack.Decoder(OwnPart),
}
_KINDS: Final[dict[bytes, msgspec.msgpack.Decoder[object]]] = {
    b"w": msgspec.msgpack.Decoder(list[Waiting]),
    TOMBSTONE_KEY: msgspec.msgpack.Decoder(Tombstone),
    POINT_KEY: msgspec.msgpack.Decoder(FaultPoint),
}


def as_now(key: bytes, part: bytes) -> bytes:
    """A part of the state of events or of fault points, as this code writes what it means.

    Raises `StateCorrupt`, also where it says something that this code cannot read.
    """
    try:
        now = _as_now(key, part)
        skipped = PREFIX_BYTES if key[:1] == b"r" else 0
        if now != part and _says_more(_decode(part[skipped:]), _decode(now[skipped:])):
            raise StateCorrupt("it has fields that this code does not know: a newer one wrote it")
    except msgspec.MsgspecError as error:
        raise StateCorrupt(str(error)) from error
    return now


def _as_now(key: bytes, part: bytes) -> bytes:
    kind = key[:1]
    decoder = _OWN.get(key) or _KINDS.get(kind)
    if decoder is not None:
        return _encode(decoder.decode(part))
    if kind == b"r" and (held := read_prefix(part).kind) != KIND_RUN:
        return part[:PREFIX_BYTES] + _encode(unpack_stub(run_of(key)[0], part, [], held).head)
    return parts_as(max(LAYOUTS), [(key, part)])[0][1]


def _says_more(had: object, has: object) -> bool:
    """Whether the first has more fields than the second, and one of them says something."""
    if isinstance(had, list) and isinstance(has, list):
        return any(had[len(has) :]) or any(map(_says_more, had, has))
    if isinstance(had, dict) and isinstance(has, dict):
        return any(
            _says_more(value, has[name]) if name in has else bool(value)
            for name, value in had.items()
        )
    return False
