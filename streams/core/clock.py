"""The two clocks of a partition, moved by the log alone."""

from __future__ import annotations


class Clock:
    """Log time is the largest append time so far. Live time moves only at ticks.

    A tick moves live time by the log time since the anchor, at most `cap_ms`: neither a broker nor
    an owner that stood still makes a step late. The anchor is the last tick, or the moment when the
    first attempt took off after a time without any.
    """

    __slots__ = ("anchor_ms", "live_ms", "log_ms")

    def __init__(self, log_ms: int = 0, live_ms: int = 0, anchor_ms: int = 0) -> None:
        self.log_ms = log_ms
        self.live_ms = live_ms
        self.anchor_ms = anchor_ms

    def observe(self, at_ms: int) -> None:
        """Moves log time: append times may go back at a change of leader, log time does not."""
        if at_ms > self.log_ms:  # noqa: PLR1730 - a builtin takes four times as long
            self.log_ms = at_ms

    def tick(self, cap_ms: int) -> None:
        """Moves live time."""
        self.live_ms = self.live_now_ms(cap_ms)
        self.anchor_ms = self.log_ms

    def live_now_ms(self, cap_ms: int) -> int:
        """What live time would be if a tick came now: deadlines count from it, so none is early."""
        passed_ms = self.log_ms - self.anchor_ms
        if passed_ms <= 0:
            return self.live_ms
        return self.live_ms + (min(cap_ms, passed_ms))

    def take_off(self) -> None:
        """The first attempt is in flight again: what passed before does not count."""
        self.anchor_ms = max(self.anchor_ms, self.log_ms)
