"""Avro's binary primitives, as the compiled codecs use them. Source: Avro 1.12 specification.

Reading functions take the data and a position and return a value and the next position. They raise
`IndexError` past the end and `Refused` for what is malformed; `dalsegno.schemas.diagnosis` then
says where.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

ITEMS_MAX: Final = 65_536
"""Elements of one array: above what any valid record holds, below what could hurt."""
LONG_MIN: Final = -(2**63)
LONG_MAX: Final = 2**63 - 1
INT_MIN: Final = -(2**31)
INT_MAX: Final = 2**31 - 1

_VARINT_BITS: Final = 63  # the tenth byte of a 64-bit varint starts at this bit
# Unix milliseconds from 1970-07 to 2039 take six bytes. Their upper four change every eight
# seconds, so a short memory of them saves most of the work that Python's large integers make.
_MS_LOW: Final = 1 << 34
_MS_HIGH: Final = 1 << 41
_MS_BYTES: Final = 6
_LOW_BITS: Final = 14
_LOW_MASK: Final = (1 << _LOW_BITS) - 1
_TWO_PARTS: Final = 1 << 2 * _LOW_BITS - 1
SMALL_MAX: Final = (1 << _LOW_BITS - 1) - 1
"""The largest number in `SMALL`."""


class Refused(Exception):  # noqa: N818 - never leaves the codec, which turns it into a typed error
    """The fast path found something it does not accept."""


def pack_varint(z: int) -> bytes:
    """An unsigned number below 2**64 as a varint."""
    out = bytearray()
    while z > 127:
        out.append(z & 127 | 128)
        z >>= 7
    out.append(z)
    return bytes(out)


# Made by joining single bytes: every process builds these tables before it does anything else.
_ON: Final = tuple(bytes((z | 128,)) for z in range(128))
_END: Final = tuple(bytes((z,)) for z in range(128))
_LOW: Final = tuple([low + high for high in _ON for low in _ON])
"""The lowest 14 bits of a varint that goes on."""
_LAST: Final = _END + tuple([low + high for high in _END[1:] for low in _ON])
"""Whole varints of up to 14 bits, which are also the ends of longer ones."""
SMALL: Final = _LAST[::2]
"""Zigzag varints of 0 to 8191: also the lengths of texts and the counts of arrays."""
ZIGZAG: Final = tuple(n >> 1 ^ -(n & 1) for n in range(128))
"""The signed number that each single byte stands for."""
ENDS: Final = tuple(1 + (n >> 1) for n in range(128))
"""How far a text or bytes reaches whose length is that single byte."""


@lru_cache(maxsize=256)
def _pack_upper(upper: int) -> bytes:
    """The last four bytes of a six-byte varint, from what is above its lowest 14 bits."""
    return pack_varint(upper)


# All that is put out in a millisecond names it: every record, and some of them twice.
@lru_cache(maxsize=1024)
def _pack_ms(n: int) -> bytes:
    return _LOW[n << 1 & _LOW_MASK] + _pack_upper(n >> _LOW_BITS - 1)


@lru_cache(maxsize=256)
def _read_upper(data: bytes) -> int:
    """The inverse, shifted to its place in the signed number; -1 if the varint ends elsewhere."""
    a, b, c, d = data
    if d > 127 or a & b & c < 128:
        return -1
    return ((a & 127) | (b & 127) << 7 | (c & 127) << 14 | d << 21) << _LOW_BITS - 1


def pack_long(n: int) -> bytes:
    """A signed 64-bit number; `Refused` beyond."""
    if _MS_LOW <= n < _MS_HIGH:
        return _pack_ms(n)
    if SMALL_MAX < n < _TWO_PARTS:
        return _LOW[n << 1 & _LOW_MASK] + _LAST[n >> _LOW_BITS - 1]
    if LONG_MIN <= n <= LONG_MAX:
        return pack_varint(n << 1 if n >= 0 else ~n << 1 | 1)
    raise Refused


def pack_int(n: int) -> bytes:
    """A signed 32-bit number; `Refused` beyond."""
    if INT_MIN <= n <= INT_MAX:
        return pack_varint(n << 1 if n >= 0 else ~n << 1 | 1)
    raise Refused


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """A signed 64-bit number."""
    first = data[at]
    if first < 128:
        return ZIGZAG[first], at + 1
    second = data[at + 1]
    if second < 128:
        z = first & 127 | second << 7
        return z >> 1 ^ -(z & 1), at + 2
    third = data[at + 2]
    if third < 128:
        z = first & 127 | (second & 127) << 7 | third << 14
        return z >> 1 ^ -(z & 1), at + 3
    if not first & 1 and len(data) >= at + _MS_BYTES:
        upper = _read_upper(data[at + 2 : at + _MS_BYTES])
        if upper >= 0:
            return upper + ((first & 127 | (second & 127) << 7) >> 1), at + _MS_BYTES
    return _read_varint(data, at)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    z = byte & 127
    shift = 7
    while byte > 127:
        byte = data[at]
        at += 1
        if shift == _VARINT_BITS and byte > 1:
            raise Refused
        z |= (byte & 127) << shift
        shift += 7
    return z >> 1 ^ -(z & 1), at


def read_int(data: bytes, at: int) -> tuple[int, int]:
    """A signed 32-bit number."""
    n, at = read_long(data, at)
    if INT_MIN <= n <= INT_MAX:
        return n, at
    raise Refused


def read_size(data: bytes, at: int) -> tuple[int, int]:
    """A length in bytes that the data can still hold."""
    n, at = read_long(data, at)
    if 0 <= n <= len(data) - at:
        return n, at
    raise Refused


def read_block(data: bytes, at: int, had: int) -> tuple[int, int, int]:
    """The head of an array block: count, position, and where the block must end (-1: free).

    `had` elements came before. No element takes less than a byte, so a count beyond the bytes that
    are left is refused before anything is made for it.
    """
    count, at = read_long(data, at)
    stop = -1
    if count < 0:
        count = -count
        size, at = read_size(data, at)
        stop = at + size
    if count > len(data) - at or had + count > ITEMS_MAX:
        raise Refused
    return count, at, stop
