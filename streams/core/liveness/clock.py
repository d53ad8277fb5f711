"""The partition clock: append time without the gaps in which the broker stood still."""

from __future__ import annotations


class PartitionClock:
    """Adds up `min(step of append time, cap)` over the records of one heartbeats partition.

    A canary each half cap keeps it going where few workers beat. While the broker takes no records
    there are none to read, and the first one after moves the clock by the cap alone; so a pause of
    the broker makes no step late. Append time that goes back (a change of leader) moves nothing.
    """

    __slots__ = ("at_ms", "cap_ms", "now_ms")

    def __init__(self, cap_ms: int) -> None:
        self.cap_ms = cap_ms
        self.now_ms = 0
        self.at_ms: int | None = None

    def advance(self, at_ms: int) -> int:
        """Take a record appended at `at_ms` (Unix ms) and return the clock's reading (ms)."""
        last_ms = self.at_ms
        if last_ms is None:
            self.at_ms = at_ms
        elif at_ms > last_ms:
            step_ms = at_ms - last_ms
            self.now_ms += min(self.cap_ms, step_ms)
            self.at_ms = at_ms
        return self.now_ms

    def latest_at(self, at_ms: int) -> int:
        """The latest that the clock can show at append time `at_ms`, past or yet to be read.

        The clock never runs faster than append time, so what starts ahead of the heartbeats read so
        far (the events are read by another consumer) starts no later than this.
        """
        last_ms = self.at_ms
        if last_ms is None or at_ms <= last_ms:
            return self.now_ms
        return self.now_ms + at_ms - last_ms
