"""Running attempts in columns: constant memory per step, whatever it reports and for how long."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from dalsegno.streams.core.liveness.kinds import Kind
from dalsegno.streams.core.liveness.workers import Process

Key = tuple[str, str]
"""Run id and step."""

_REFERENCE_BYTES = 8


class Watches:
    """One slot per running attempt, used again. Times are readings of the partition clock.

    `heard_ms`: last sign of life. `moved_ms`: last progress. `check_ms`: when to look at it next
    (the one heap entry that counts), -1 for a slot that is free. `silent`, `stuck`: how often that
    verdict was passed since the step was last well. `process` is None where no worker is named.
    """

    __slots__ = (
        "_free",
        "_slots",
        "check_ms",
        "epoch",
        "find",
        "heard_ms",
        "keys",
        "kind",
        "moved_ms",
        "process",
        "progress",
        "silent",
        "stuck",
    )

    def __init__(self) -> None:
        self._slots: dict[Key, int] = {}
        self.find = self._slots.get
        """The slot of a running attempt, or None."""
        self._free: list[int] = []
        self.keys: list[Key | None] = []
        self.kind: list[Kind] = []
        self.process: list[Process | None] = []
        self.heard_ms = array("q")
        self.moved_ms = array("q")
        self.check_ms = array("q")
        self.progress = array("q")
        self.epoch = array("i")
        self.silent = array("B")
        self.stuck = array("B")

    def __len__(self) -> int:
        return len(self._slots)

    def __iter__(self) -> Iterator[int]:
        return iter(self._slots.values())

    @property
    def bytes_per_slot(self) -> int:
        """Width of a slot over all columns: numbers, and references to what is shared."""
        numbers = (self.heard_ms, self.moved_ms, self.check_ms, self.progress)
        small = (self.epoch, self.silent, self.stuck)
        return sum(column.itemsize for column in (*numbers, *small)) + 3 * _REFERENCE_BYTES

    def add(self, key: Key, epoch: int, kind: Kind, process: Process | None, now_ms: int) -> int:
        """Watch an attempt that is not watched yet, from `now_ms` on; return its slot."""
        if self._free:
            slot = self._free.pop()
        else:
            slot = len(self.keys)
            for column in (self.heard_ms, self.moved_ms, self.check_ms, self.progress):
                column.append(0)
            for small in (self.epoch, self.silent, self.stuck):
                small.append(0)
            self.keys.append(None)
            self.kind.append(kind)
            self.process.append(None)
        self._slots[key] = slot
        self.keys[slot], self.kind[slot], self.process[slot] = key, kind, process
        self.epoch[slot], self.progress[slot] = epoch, 0
        self.heard_ms[slot] = self.moved_ms[slot] = self.check_ms[slot] = now_ms
        self.silent[slot] = self.stuck[slot] = 0
        return slot

    def remove(self, key: Key) -> None:
        """Forget an attempt."""
        slot = self._slots.pop(key)
        self.keys[slot], self.process[slot], self.check_ms[slot] = None, None, -1
        self._free.append(slot)
