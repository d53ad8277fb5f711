"""The sequence of an output: which event it came from, and its place among the outputs."""

from __future__ import annotations

import struct
from typing import NamedTuple

_FORMAT = struct.Struct(">qIq")


class Sequence(NamedTuple):
    """`offset` of the source event, `index` among its outputs, dense `count` within the channel.

    Ordered as (offset, index); `count` starts at 1 and has no gaps, so a reader can insist on it.
    """

    offset: int
    index: int  # type: ignore[assignment]
    count: int  # type: ignore[assignment]

    def pack(self) -> bytes:
        """20 bytes, big-endian: int64 offset, uint32 index, int64 count."""
        return _FORMAT.pack(*self)

    @classmethod
    def unpack(cls, data: bytes) -> Sequence:
        """Raises `struct.error` if `data` is not 20 bytes."""
        return cls(*_FORMAT.unpack(data))
