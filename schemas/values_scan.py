"""Reads MessagePack that is not in its shortest form, for what a decoder would swallow.

Keys that occur twice in a map, times with digits below the microsecond, and blob references in
another spelling than theirs. The bytes have passed a
complete decoder before, so lengths are known to fit. Source: the MessagePack specification,
timestamp extension included.
"""

from __future__ import annotations

from typing import Final

from dalsegno.schemas.blob import EXTENSION
from dalsegno.schemas.errors import ValueRefusedError

_TIME_EXT: Final = 0xFF
_NANOS_PER_MICRO: Final = 1000
_EXT_8: Final = 0xC7
# Bytes of the payload after these type bytes.
_WIDTHS: Final = {
    0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8,
    0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8,
}  # fmt: skip
# Bytes of the length after these type bytes.
_SIZED: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_TEXTS: Final = (0xD9, 0xDA, 0xDB)
_ARRAYS: Final = {0xDC: 2, 0xDD: 4}
_MAPS: Final = {0xDE: 2, 0xDF: 4}
_EXT_SIZED: Final = {0xC7: 1, 0xC8: 2, 0xC9: 4}
_EXT_FIXED: Final = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}


def scan(data: bytes) -> None:
    """Raises `ValueRefusedError` for a key that is repeated or no text, an extension that is
    neither a time nor a blob reference, or a time that microseconds cannot hold. `RecursionError`
    beyond the stack's depth.
    """
    end = _value(data, 0, "")
    if end != len(data):
        raise ValueRefusedError("", "bytes after the value's end")


def _number(data: bytes, at: int, width: int) -> int:
    return int.from_bytes(data[at : at + width], "big")


def _value(data: bytes, at: int, path: str) -> int:
    """The position after the value at `at`."""
    head = data[at]
    at += 1
    if head < 0x80 or head >= 0xE0:
        return at
    if head < 0x90:
        return _map(data, at, head & 15, path)
    if head < 0xA0:
        return _array(data, at, head & 15, path)
    if head < 0xC0:
        return at + (head & 31)
    if head in _WIDTHS:
        return at + _WIDTHS[head]
    if head in _SIZED:
        width = _SIZED[head]
        return at + width + _number(data, at, width)
    if head in _ARRAYS:
        width = _ARRAYS[head]
        return _array(data, at + width, _number(data, at, width), path)
    if head in _MAPS:
        width = _MAPS[head]
        return _map(data, at + width, _number(data, at, width), path)
    return _extension(data, at, head, path)


def _array(data: bytes, at: int, count: int, path: str) -> int:
    for i in range(count):
        at = _value(data, at, f"{path}[{i}]")
    return at


def _map(data: bytes, at: int, count: int, path: str) -> int:
    keys: set[str] = set()
    for _ in range(count):
        key, at = _key(data, at, path)
        inner = f"{path}.{key}" if path else key
        if key in keys:
            raise ValueRefusedError(inner, "the key occurs twice in its map")
        keys.add(key)
        at = _value(data, at, inner)
    return at


def _key(data: bytes, at: int, path: str) -> tuple[str, int]:
    head = data[at]
    if head & 0xE0 == 0xA0:
        start, size = at + 1, head & 31
    elif head in _TEXTS:
        width = _SIZED[head]
        start, size = at + 1 + width, _number(data, at + 1, width)
    else:
        raise ValueRefusedError(path, "a map key is not text")
    return data[start : start + size].decode(), start + size


def _extension(data: bytes, at: int, head: int, path: str) -> int:
    if head in _EXT_FIXED:
        size = _EXT_FIXED[head]
    else:
        width = _EXT_SIZED[head]
        size = _number(data, at, width)
        at += width
    code, start = data[at], at + 1
    if code == EXTENSION and head == _EXT_8:
        return start + size
    if code != _TIME_EXT:
        raise ValueRefusedError(path, f"extension type {code} is no time or blob")
    nanos = 0
    if size == 8:
        nanos = _number(data, start, 8) >> 34
    elif size == 12:
        nanos = _number(data, start, 4)
    if nanos % _NANOS_PER_MICRO:
        raise ValueRefusedError(path, "the time has digits below the microsecond")
    return start + size
