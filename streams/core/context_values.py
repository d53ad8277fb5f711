"""Values of a context and their packed bytes.

None, booleans, integers of 64 bits with sign, floats, texts, bytes, UTC times, blob references
(which the fold never follows), lists, and maps with texts as keys. Packed bytes are what msgspec
writes: the shortest form of every number and header. Two values are equal when their packed bytes
are: in Python `1 == True == 1.0`, here they differ, and so do maps whose keys stand in another
order.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, TypeAlias

import msgspec

from dalsegno.schemas.blob import Blob, decode_hook, encode_hook
from dalsegno.schemas.errors import ValueRefusedError
from dalsegno.schemas.values_scan import scan
from dalsegno.streams.core.context_errors import DeltaError, pointer

Value: TypeAlias = (
    "bool | int | float | str | bytes | datetime | Blob | list[Value] | dict[str, Value] | None"
)
Path: TypeAlias = tuple[str | int, ...]

DEPTH_MAX: Final = 64
_INT_MIN: Final = -(2**63)
_INT_MAX: Final = 2**63 - 1
_PLAIN: Final = frozenset((str, bool, type(None), float, bytes, Blob))

_decode = msgspec.msgpack.Decoder(ext_hook=decode_hook).decode
pack = msgspec.msgpack.Encoder(enc_hook=encode_hook).encode


def unpack(data: bytes) -> Value:
    """One value from exactly these bytes, checked. Raises `DeltaError` with the path inside it."""
    return check(unpack_raw(data), (), DEPTH_MAX)


def unpack_raw(data: bytes) -> object:
    """One MessagePack value from exactly these bytes, for `check`. Raises `DeltaError`."""
    try:
        value: object = _decode(data)
        if pack(value) != data:
            scan(data)  # a longer form, which is allowed, or a key twice, which decoding swallows
    except msgspec.MsgspecError as error:
        raise DeltaError("", f"is no MessagePack value: {error}") from error
    except ValueRefusedError as error:
        raise DeltaError("", str(error)) from error
    except RecursionError as error:
        raise DeltaError("", f"is nested deeper than {DEPTH_MAX} levels") from error
    return value


def trusted(data: bytes) -> Value:
    """One value from bytes that `pack` wrote: not checked again."""
    value: Value = _decode(data)
    return value


def check(value: object, path: Path, depth: int) -> Value:
    """The value, if a context can hold it in `depth` more levels. Raises `DeltaError`."""
    kind = type(value)
    if kind in _PLAIN:
        return value  # type: ignore[return-value]
    if kind is int:
        assert isinstance(value, int)
        if not _INT_MIN <= value <= _INT_MAX:
            raise DeltaError(pointer(path), "the integer does not fit 64 bits with sign")
        return value
    if isinstance(value, (dict, list)):
        if depth <= 0:
            raise DeltaError(pointer(path), f"is nested deeper than {DEPTH_MAX} levels")
        if isinstance(value, list):
            for i, item in enumerate(value):
                if type(item) not in _PLAIN:
                    check(item, (*path, i), depth - 1)
            return value
        for key, item in value.items():
            if type(key) is not str:
                raise DeltaError(
                    pointer(path), f"a map has the key {key!a}; only texts can be keys"
                )
            if type(item) not in _PLAIN:
                check(item, (*path, key), depth - 1)
        return value
    if isinstance(value, datetime):
        if value.tzinfo is not UTC:
            raise DeltaError(pointer(path), "the time has no zone, or one that is not UTC")
        return value
    raise DeltaError(pointer(path), f"a context cannot hold a {kind.__name__}")


def map_header(count: int) -> bytes:
    """MessagePack header of a map with `count` keys."""
    if count < 16:
        return bytes((0x80 | count,))
    return (
        b"\xde" + count.to_bytes(2, "big") if count < 65536 else b"\xdf" + count.to_bytes(4, "big")
    )


def list_header(count: int) -> bytes:
    """MessagePack header of an array with `count` items."""
    if count < 16:
        return bytes((0x90 | count,))
    return (
        b"\xdc" + count.to_bytes(2, "big") if count < 65536 else b"\xdd" + count.to_bytes(4, "big")
    )


def header_bytes(count: int) -> int:
    """Length of the header of a map or array with `count` entries."""
    return 1 if count < 16 else 3 if count < 65536 else 5


def text_bytes(text: str) -> int:
    """Packed length of a text."""
    length = len(text) if text.isascii() else len(text.encode())
    return length + (1 if length < 32 else 2 if length < 256 else 3 if length < 65536 else 5)
