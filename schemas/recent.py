"""Remembers what was last decoded from the same bytes.

Every run of a flow carries the same plan, which is most of the bytes of its start. Avro's encoding
of a record is prefix-free: if the data goes on with bytes that were once a whole record, it is that
record again. Records are immutable, so one object serves all; the memory changes no result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

ENTRIES_MAX: Final = 256
"""Distinct plans kept; when full, all are dropped, which costs one decoding each."""
ENTRY_BYTES_MAX: Final = 65_536
KEY_BYTES: Final = 256
"""Two plans alike for so many bytes take each other's place."""


class Recent:
    """A decoder `(data, at) -> (value, next)` before another one, with a bounded memory."""

    def __init__(self, decode: Callable[[bytes, int], tuple[Any, int]]) -> None:
        self._decode = decode
        self._known: dict[bytes, tuple[bytes, Any]] = {}

    def __call__(self, data: bytes, at: int) -> tuple[Any, int]:
        """As the decoder that it stands before; the same refusals."""
        key = data[at : at + KEY_BYTES]
        known = self._known.get(key)
        if known is not None and data.startswith(known[0], at):
            return known[1], at + len(known[0])
        value, end = self._decode(data, at)
        if end - at <= ENTRY_BYTES_MAX and end <= len(data):
            if len(self._known) >= ENTRIES_MAX:
                self._known.clear()
            self._known[key] = (data[at:end], value)
        return value, end
