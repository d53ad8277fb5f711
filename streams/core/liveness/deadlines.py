"""The lazy heap: when which slot is to be looked at next, on the partition clock."""

from __future__ import annotations

import heapq
from array import array

_SLOT_BITS = 32
_SLOT_MASK = (1 << _SLOT_BITS) - 1
_SLACK = 1_024


class Deadlines:
    """Entries are single integers (time, slot). An entry counts only while it equals the slot's
    `check_ms`; a heartbeat therefore touches no heap, and the entry it made out of date is put back
    with the right time when it comes up.
    """

    __slots__ = ("_check_ms", "_heap")

    def __init__(self, check_ms: array[int]) -> None:
        self._check_ms = check_ms
        self._heap: list[int] = []

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, slot: int, at_ms: int, live: int) -> None:
        """Look at `slot` at `at_ms` and not before. `live`: slots in use, bounds the heap."""
        self._check_ms[slot] = at_ms
        heapq.heappush(self._heap, at_ms << _SLOT_BITS | slot)
        if len(self._heap) > 4 * live + _SLACK:
            self._rebuild()

    def pop(self, now_ms: int) -> int | None:
        """The next slot that is due at `now_ms`; its caller puts it back."""
        while self._heap and self._heap[0] >> _SLOT_BITS <= now_ms:
            entry = heapq.heappop(self._heap)
            slot = entry & _SLOT_MASK
            if self._check_ms[slot] == entry >> _SLOT_BITS:
                return slot
        return None

    def _rebuild(self) -> None:
        self._heap = [
            at_ms << _SLOT_BITS | slot for slot, at_ms in enumerate(self._check_ms) if at_ms >= 0
        ]
        heapq.heapify(self._heap)
