"""Keys and values of the warm store.

| key | value |
|---|---|
| `"m"` | identity, position, counts |
| `"r" run` | the run: header, small parts, names of the parts outside |
| `"x" run 00 part` | a part outside: of a run whose parts are more than `INLINE_BYTES` together |
| `"t" due run`, `"l" due run` | deadlines on log and on live time (uint64 big-endian) |
| `"f" run` | attempts are in flight, steps stand in lines, or it is wanted from the archive |
| `"p" digest` | a plan and who names it |
| `"o" key` | any other part |
| `"k" run 00 version` | a link of a snapshot chain (see `snapshots/store.py`) |

`part` is a part's key without the run id. Every value but a link ends with a CRC-32 over its key
and itself: a value in the wrong place, cut or changed is found before anything in it is believed.
(The database has checksums of its blocks; this one also covers us and what lies between.)
"""

from __future__ import annotations

from struct import Struct
from typing import Final, TypeVar
from zlib import crc32

import msgspec

from dalsegno.storage.errors import StoreLostError

FORMAT: Final = 1
INLINE_BYTES: Final = 8_192

META: Final = b"m"
RUN: Final = b"r"
OUTSIDE: Final = b"x"
LOG_DUE: Final = b"t"
LIVE_DUE: Final = b"l"
MOVING: Final = b"f"
PLAN: Final = b"p"
OTHER: Final = b"o"

T = TypeVar("T")

_DUE: Final = Struct(">Q")
_CRC: Final = Struct(">I")
_encode = msgspec.msgpack.Encoder().encode


class Meta(msgspec.Struct, array_like=True, frozen=True):
    """`identity`: whose changelog this is of. `position`: offset to read the changelog on from.
    `caught_up_ms`: when that was all there was, by this machine's clock.
    """

    format: int
    identity: str
    position: int
    caught_up_ms: int
    runs: int
    open: int
    cold: int = 0


class RunRecord(msgspec.Struct, array_like=True, frozen=True):
    """A run. `parts`: by name (`kind + tail`); `outside`: names of those stored on their own."""

    header: bytes
    parts: dict[bytes, bytes]
    outside: list[bytes]


class PlanRecord(msgspec.Struct, array_like=True, frozen=True):
    """A plan (empty bytes: not seen yet), and how many headers and plans name it."""

    packed: bytes
    refs: int
    longer: int


_meta = msgspec.msgpack.Decoder(Meta)
_run = msgspec.msgpack.Decoder(RunRecord)
_plan = msgspec.msgpack.Decoder(PlanRecord)


def seal(key: bytes, value: bytes) -> bytes:
    """The value with its check sum."""
    return value + _CRC.pack(crc32(value, crc32(key)))


def unseal(key: bytes, sealed: bytes) -> bytes:
    """The value. Raises `StoreLostError` if it is not what was sealed under this key."""
    value = sealed[: -_CRC.size]
    if len(sealed) < _CRC.size or sealed[-_CRC.size :] != _CRC.pack(crc32(value, crc32(key))):
        raise StoreLostError(f"the value of {key!a} is not what was stored")
    return value


def seal_record(key: bytes, record: Meta | RunRecord | PlanRecord) -> bytes:
    """A record as a value."""
    return seal(key, _encode(record))


def read_meta(sealed: bytes) -> Meta:
    """Raises `StoreLostError`."""
    return _decoded(_meta, META, sealed)


def read_run(key: bytes, sealed: bytes) -> RunRecord:
    """Raises `StoreLostError`."""
    return _decoded(_run, key, sealed)


def read_plan(key: bytes, sealed: bytes) -> PlanRecord:
    """Raises `StoreLostError`."""
    return _decoded(_plan, key, sealed)


def _decoded(decoder: msgspec.msgpack.Decoder[T], key: bytes, sealed: bytes) -> T:
    try:
        return decoder.decode(unseal(key, sealed))
    except msgspec.MsgspecError as error:
        raise StoreLostError(f"the value of {key!a} cannot be read: {error}") from error


def due_key(kind: bytes, due_ms: int, run: bytes) -> bytes:
    """Key of a deadline: they sort by time, then by run."""
    return kind + _DUE.pack(due_ms) + run


def read_due(key: bytes) -> tuple[int, str]:
    """The deadline and the run id of a deadline's key."""
    return _DUE.unpack_from(key, 1)[0], key[1 + _DUE.size :].decode()


def after_due(kind: bytes, due_ms: int, run: bytes) -> bytes:
    """The first key behind a deadline's."""
    return due_key(kind, due_ms, run) + b"\0"


def outside_key(run: bytes, part: bytes) -> bytes:
    """Key of a part outside."""
    return OUTSIDE + run + b"\0" + part


def part_name(key: bytes, run: bytes) -> bytes:
    """A part's key without the run id."""
    return key[:1] + key[len(run) + 2 :]


def part_key(name: bytes, run: bytes) -> bytes:
    """A part's key, from its name."""
    return name[:1] + run + b"\0" + name[1:]
