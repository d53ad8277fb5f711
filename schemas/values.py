"""Context values and their bytes: the contract's MessagePack profile, strict in both directions.

A value is null, a boolean, an integer of 64 bits, a float (NaN and infinities included), text,
bytes, a UTC time to the microsecond, a blob reference (`Blob`: a large value that is kept
elsewhere), a list of values, or a map from text to value. Everything else is refused with its path:
a tuple or set that would come back as a list, a number that would lose digits, a time without a
zone, keys that would merge (`1` and `True`), text that is not Unicode. What is packed comes back
equal and of the same type; a time in another zone comes back as the same instant in UTC.

Unpacking takes all bytes or refuses. Two values are the same when their packed bytes are: Python's
`==` takes `1`, `1.0` and `True` for equal and NaN for different.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, TypeAlias

import msgspec

from dalsegno.schemas.blob import Blob, decode_hook, encode_hook
from dalsegno.schemas.errors import ValueRefusedError
from dalsegno.schemas.values_scan import scan

Value: TypeAlias = (
    "bool | int | float | str | bytes | datetime | Blob | list[Value] | dict[str, Value] | None"
)

DEPTH_MAX: Final = 64
"""Maps and lists within each other: deeper than people write, far from any stack's end."""
BYTES_MAX: Final = 8 * 1024 * 1024
"""Packed bytes of one value; callers may ask for less."""
INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1

_ATOMS: Final = frozenset((type(None), bool, float, str, bytes, Blob))
_encode = msgspec.msgpack.Encoder(enc_hook=encode_hook).encode
_decode = msgspec.msgpack.Decoder(ext_hook=decode_hook).decode


def pack(value: Value, *, bytes_max: int = BYTES_MAX) -> bytes:
    """The bytes of a value. Raises `ValueRefusedError` with the path to what does not fit."""
    _check(value, DEPTH_MAX)
    try:
        data = _encode(value)
    except UnicodeEncodeError:
        path = ascii(_surrogate(value) or "")[1:-1]
        raise ValueRefusedError(path, "text with a lone surrogate is not Unicode") from None
    if len(data) > bytes_max:
        raise ValueRefusedError("", f"{len(data)} packed bytes, over {bytes_max}")
    return data


def unpack(data: bytes, *, bytes_max: int = BYTES_MAX) -> Value:
    """The value that the bytes are, whole. Raises `ValueRefusedError`."""
    if len(data) > bytes_max:
        raise ValueRefusedError("", f"{len(data)} packed bytes, over {bytes_max}")
    try:
        value: Value = _decode(data)
    except (msgspec.DecodeError, OverflowError) as error:
        raise ValueRefusedError("", str(error)) from None
    except RecursionError:
        raise ValueRefusedError("", f"nested deeper than {DEPTH_MAX}") from None
    _check(value, DEPTH_MAX)
    if _encode(value) != data:
        # Not the shortest form, which is allowed, or something that decoding has swallowed.
        scan(data)
    return value


def unpack_map(data: bytes) -> dict[str, Value]:
    """As `unpack`, for a map. Raises `ValueRefusedError` for another type too."""
    value = unpack(data)
    if type(value) is not dict:
        raise ValueRefusedError("", f"expected a map, not {type(value).__name__}")
    return value


def same(left: Value, right: Value) -> bool:
    """Whether two values have the same packed bytes. Raises `ValueRefusedError`."""
    return pack(left) == pack(right)


def _check(value: object, depth: int) -> None:
    kind = type(value)
    if kind in _ATOMS:
        return
    if kind is int:
        if not INT_MIN <= value <= INT_MAX:  # type: ignore[operator]
            raise ValueRefusedError("", f"{value} is over 64 bits")
    elif kind is dict:
        _check_map(value, depth)  # type: ignore[arg-type]
    elif kind is list:
        _check_list(value, depth)  # type: ignore[arg-type]
    elif kind is datetime:
        _check_time(value)  # type: ignore[arg-type]
    else:
        raise ValueRefusedError("", f"a {kind.__name__} has no place in a context; convert it")


def _check_map(value: dict[object, object], depth: int) -> None:
    if not depth:
        raise ValueRefusedError("", f"nested deeper than {DEPTH_MAX}")
    for key, each in value.items():
        if type(key) is not str:
            raise ValueRefusedError("", f"map key {key!r:.80} is not text")
        if type(each) not in _ATOMS:
            try:
                _check(each, depth - 1)
            except ValueRefusedError as error:
                raise _within(key, error) from None


def _check_list(value: list[object], depth: int) -> None:
    if not depth:
        raise ValueRefusedError("", f"nested deeper than {DEPTH_MAX}")
    for i, each in enumerate(value):
        if type(each) not in _ATOMS:
            try:
                _check(each, depth - 1)
            except ValueRefusedError as error:
                raise _within(f"[{i}]", error) from None


def _check_time(value: datetime) -> None:
    if value.utcoffset() is None:
        raise ValueRefusedError("", f"time {value} has no zone")
    try:
        value.astimezone(UTC)
    except OverflowError:
        raise ValueRefusedError("", f"time {value} is outside the years 1 to 9999 UTC") from None


def _within(head: str, error: ValueRefusedError) -> ValueRefusedError:
    tail = error.path
    joint = "" if not tail or tail.startswith("[") else "."
    return ValueRefusedError(f"{head}{joint}{tail}", error.detail)


def _surrogate(value: object, path: str = "") -> str | None:
    """Path of the first text that is not Unicode, in a value that `_check` has accepted."""
    if isinstance(value, str):
        return path if not _is_unicode(value) else None
    if isinstance(value, dict):
        for key, each in value.items():
            inner = f"{path}.{key}" if path else key
            found = inner if not _is_unicode(key) else _surrogate(each, inner)
            if found is not None:
                return found
    if isinstance(value, list):
        for i, each in enumerate(value):
            if (found := _surrogate(each, f"{path}[{i}]")) is not None:
                return found
    return None


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)
