"""What of one partition's packages is settled towards one target. Pure.

It is kept where the group of the target keeps its offset: the offset is that of the first package
that is not settled, and the metadata says which behind it are, so that one that is refused again
and again holds up no other.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections import deque
from typing import Final

_FORM: Final = "1"
SPAN_MAX: Final = 4_096
"""Offsets between the first package that is not settled and the last one read. Their bits fit into
what a broker takes as metadata (4,096 bytes by default)."""


class LedgerError(ValueError):
    """The metadata was not written by this code."""


class Ledger:
    """`base`: offset of the first record that is not settled. `high`: the dense count of the last
    one before it, so that a repeat of an output is known as one.
    """

    def __init__(self, base: int, high: int = 0, settled: frozenset[int] = frozenset()) -> None:
        self.base = base
        self.high = high
        self.next_offset = base
        self._top = high
        self._before = settled
        self._read: deque[tuple[int, int]] = deque()
        self._settled: set[int] = set()

    @classmethod
    def load(cls, offset: int, metadata: str) -> Ledger:
        """What `save` gave. Raises `LedgerError`."""
        if not metadata:
            return cls(offset)
        try:
            form, high, bits = metadata.split(" ")
            number = int.from_bytes(b64decode(bits, validate=True), "little")
            if form != _FORM or int(high) < 0 or number.bit_length() > SPAN_MAX:
                raise LedgerError(metadata)
        except ValueError as error:
            raise LedgerError(f"not the metadata of a webhook's offset: {metadata!a}") from error
        settled = {offset + at for at in range(number.bit_length()) if number >> at & 1}
        return cls(offset, int(high), frozenset(settled))

    def save(self) -> tuple[int, str]:
        """Offset and metadata."""
        number = sum(1 << at - self.base for at in self._settled)
        size = (number.bit_length() + 7) // 8
        bits = b64encode(number.to_bytes(size, "little")).decode()
        return self.base, f"{_FORM} {self.high} {bits}"

    @property
    def full(self) -> bool:
        """Whether no more may be read before the first package is settled."""
        return self.next_offset - self.base >= SPAN_MAX

    def read(self, offset: int, count: int) -> bool:
        """A record was read, in the order of the log: whether it is to be settled.

        `count`: its dense count; 0 for a record that is no output of a partition.
        """
        self.next_offset = offset + 1
        self._read.append((offset, count))
        fresh = count > self._top
        self._top = max(self._top, count)
        if fresh and offset not in self._before and offset not in self._settled:
            return True
        self.settle(offset)
        return False

    def settle(self, offset: int) -> None:
        """Nothing more is to be done for this record, also one that is still to be read."""
        if offset < self.base:
            return
        self._settled.add(offset)
        while self._read and self._read[0][0] in self._settled:
            first, count = self._read.popleft()
            self._settled.discard(first)
            self.base = first + 1
            self.high = max(self.high, count)
