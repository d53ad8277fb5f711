"""Avro's binary primitives, as the compiled codecs use them. Source: Avro 1.12 specification.

Reading functions take the data and a position and return a value and the next position. They raise
`IndexError` past the end and `Refused` for what is malformed; `dalsegno.schemas.diagnosis` then says
where.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

DOUBLE: Final = Struct("<d")
ITEMS_MAX: Final = 65_536
"""Elements of one array or map: above what any valid record holds, below what could hurt."""
LONG_MIN: Final = -(2**63)
LONG_MAX: Final = 2**63 - 1
INT_MIN: Final = -(2**31)
INT_MAX: Final = 2**31 - 1

_VARINT_BITS: Final = 63  # the tenth byte of a 64-bit varint starts at this bit
_MS_LOW: Final = 1 << 35  # six-byte varints: all Unix milliseconds from 1970-07 to 2039
_MS_HIGH: Final = 1 << 42


class Refused(Exception):  # noqa: N818 - never leaves the codec, which turns it into a typed error
    """The fast path found something it does not accept."""


def pack_varint(z: int) -> bytes:
    """An unsigned number below 2**64 as a varint."""
    if _MS_LOW <= z < _MS_HIGH:
        return bytes(
            (
                z & 127 | 128,
                z >> 7 & 127 | 128,
                z >> 14 & 127 | 128,
                z >> 21 & 127 | 128,
                z >> 28 & 127 | 128,
                z >> 35,
            )
        )
    out = bytearray()
    while z > 127:
        out.append(z & 127 | 128)
        z >>= 7
    out.append(z)
    return bytes(out)


SMALL: Final = tuple(pack_varint(n << 1) for n in range(1024))
"""Zigzag varints of 0 to 1023: also the lengths of short texts and the counts of small arrays."""
ZIGZAG: Final = tuple(n >> 1 ^ -(n & 1) for n in range(128))
"""The signed number that each single byte stands for."""


def pack_long(n: int) -> bytes:
    """A signed 64-bit number; `Refused` beyond."""
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
    """The head of an array or map block: count, position, and where the block must end (-1: free).

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
