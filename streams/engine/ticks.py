"""When the owner of a partition appends a clock tick. Pure: time is an argument.

Rules:
1. On assignment one tick; the append time in its produce response anchors the broker's clock,
   carried on by monotonic time, and by the append times of records when they are ahead.
2. A tick each second while a step is dispatched or running and we are less than a second behind the
   log's end: else a backlog would look like time in which a step ran.
3. A report to a fault point that is due is not kept waiting for that second.
4. When nothing runs and a deadline is due, a tick then. If its append time does not reach the
   deadline (it may go back at a change of leader), the next comes no sooner than the difference.
"""

from __future__ import annotations

from typing import Final, Protocol

RUNNING_INTERVAL_S: Final = 1.0
BEHIND_S_MAX: Final = 1.0
RETRY_S: Final = 1.0


class Deadlines(Protocol):
    """What a plan of ticks reads of the fold."""

    @property
    def needs_tick(self) -> bool:
        """Whether live time has to move."""

    @property
    def next_log_deadline_ms(self) -> int | None:
        """The next deadline by log time."""

    @property
    def next_report_ms(self) -> int | None:
        """When something has to be said about a fault point: it does not wait for the second."""

    @property
    def log_ms(self) -> int:
        """The largest append time seen."""


class TickPlan:
    """Decides for one partition. Times: `now_s` monotonic seconds, `…_ms` the broker's clock."""

    def __init__(self) -> None:
        self._anchor_ms = 0
        self._anchor_s: float | None = None
        self._sent_s: float | None = None
        self._not_before_s = 0.0
        self._in_flight = False
        self._number = self._asked = -1

    def broker_ms(self, now_s: float) -> int | None:
        """The broker's clock as far as we know it; None before the first answer."""
        if self._anchor_s is None:
            return None
        return self._anchor_ms + int((now_s - self._anchor_s) * 1_000)

    def observed(self, at_ms: int, now_s: float) -> None:
        """A record's append time: it can only be behind the broker's clock."""
        known = self.broker_ms(now_s)
        if known is not None and at_ms > known:
            self._anchor_ms, self._anchor_s = at_ms, now_s

    def due(self, deadlines: Deadlines, behind_s: float, now_s: float) -> bool:
        """Whether to append a tick now. `behind_s`: how far we are behind the log's end."""
        if self._in_flight or behind_s >= BEHIND_S_MAX or now_s < self._not_before_s:
            return False
        broker_ms = self.broker_ms(now_s)
        if broker_ms is None:
            return True
        deadline_ms = deadlines.next_log_deadline_ms
        if deadlines.needs_tick:
            if self._sent_s is None or now_s - self._sent_s >= RUNNING_INTERVAL_S:
                return True
            deadline_ms = deadlines.next_report_ms
        # A deadline that the fold's own clock has passed fires with the next event; no tick is
        # owed, unless none comes, and then the broker's clock passes it here too.
        return deadline_ms is not None and broker_ms >= deadline_ms

    def number(self, position: int) -> int:
        """The next tick's number. Never less than one of an earlier owner that we read: a tick's
        number is at most its own offset, and we have read up to `position`. So it is used up only
        by a tick that is in the log.
        """
        self._asked = max(self._number + 1, position)
        return self._asked

    def sent(self, now_s: float) -> None:
        """A tick is on its way."""
        self._in_flight = True
        self._sent_s = now_s

    def appended(self, at_ms: int, now_s: float) -> None:
        """The broker has appended it at `at_ms`. That is the anchor now, even where it went back:
        so a tick that fell short of its deadline is followed by another after the difference.
        """
        self._in_flight = False
        self._number = self._asked
        self._anchor_ms, self._anchor_s = at_ms, now_s

    def failed(self, now_s: float) -> None:
        """It could not be appended; nothing is lost, the next try comes after a while."""
        self._in_flight = False
        self._not_before_s = now_s + RETRY_S
