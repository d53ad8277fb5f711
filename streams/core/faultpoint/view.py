"""What one partition knows of one fault point, and what it has to say about it."""

from __future__ import annotations

from typing import Final

import msgspec

from dalsegno.schemas.control import BreakerState, FaultPointChanged, QuotaGranted
from dalsegno.schemas.outputs import FaultReport
from dalsegno.streams.core.faultpoint.point import given_ms

# Reports that carry no outcome are this many times rarer.
_QUIET: Final = 10
# While anything waits, or is out, the actor hears of it at least this often.
KEEPALIVE_MS: Final = 2_500
# A fault point that failed and was not opened is watched for so long after its last failure.
WATCH_MS: Final = 10_000
# How fast the usual span follows: a sixteenth of the difference.
_USUAL: Final = 16
SPANS_MAX: Final = 1_024
_UNHEARD: Final = 1 << 62


class Span(msgspec.Struct, array_like=True, gc=False):
    """The usual span of a step on a dependency while all is well; sixteenths of a millisecond."""

    count: int = 0
    usual_x: int = 0

    def add(self, span_ms: int) -> None:
        """One more attempt went well."""
        sample_x = span_ms * _USUAL or 1
        if self.count == _USUAL:
            self.usual_x += (sample_x - self.usual_x) // _USUAL
        else:
            self.count += 1
            self.usual_x += (sample_x - self.usual_x) // self.count

    @property
    def usual_ms(self) -> int:
        """0 while nothing is known."""
        return self.usual_x // _USUAL


class View(msgspec.Struct, array_like=True, kw_only=True, gc=False):
    """One fault point. Times are log times of the events.

    `seen`: number of the last state or quota applied; `since`: offset of the event from which on
    attempts need permits, and count. `hand`: permits as (lapses at, how many). `shared`: a step
    needed a permit of another point beside one of this. Outcomes are those since the last report,
    `slow` among them: attempts in a row that were slow while it was healthy. `due_ms`: when the
    next report is to be sent (0: nothing to say). `changed_ms`: when its state last changed.
    `quickest_ms`: how long the quickest of its orders was on its way, by the clocks of two logs,
    which may differ.
    """

    name: str
    state: BreakerState = BreakerState.CLOSED
    window: int = 0
    seen: int = 0
    since: int = -1
    hand: list[tuple[int, int]] = []
    shared: bool = False
    failures: int = 0
    successes: int = 0
    in_a_row: int = 0
    span_ms: int = 0
    retry_after_ms: int = 0
    error_class: str = ""
    reported_ms: int = 0
    failed_ms: int = 0
    due_ms: int = 0
    waiting: int = 0
    slow: int = 0
    changed_ms: int = 0
    quickest_ms: int = _UNHEARD

    @property
    def holds(self) -> bool:
        """Whether a step needs a permit."""
        return self.window > 0 or self.state is not BreakerState.CLOSED

    @property
    def permits(self) -> int:
        """Permits in hand."""
        return sum(count for _, count in self.hand)

    def take(self) -> int:
        """Spends the permit that lapses first; returns when that is."""
        lapses_ms, count = self.hand[0]
        self.hand = [(lapses_ms, count - 1), *self.hand[1:]] if count > 1 else self.hand[1:]
        return lapses_ms

    def give_back(self, lapses_ms: int) -> None:
        """A permit was not used after all: the unit that took it was discarded."""
        self.hand = sorted([(lapses_ms, 1), *self.hand])

    def changed(self, event: FaultPointChanged, offset: int, now_ms: int) -> None:
        """The actor says where the fault point stands. An opening voids what is in hand."""
        self._late_ms(event.number, now_ms)
        if event.state is not self.state:
            self.changed_ms = now_ms
        opened = event.state is BreakerState.OPEN
        if opened or not self.holds:
            self.since = offset
            self.hand = []
            self.failures = self.successes = self.in_a_row = self.span_ms = self.slow = 0
            self.retry_after_ms = 0
        self.state, self.window, self.seen = event.state, event.window, event.number

    def granted(self, event: QuotaGranted, now_ms: int) -> bool:
        """Permits came. False when they are older than what is known.

        The actor counts them as out for two leases from when it gave them: what was longer on its
        way, because the actor's owner died, is good for what is left of these, or for nothing.
        """
        if event.number <= self.seen or not self.holds:
            return False
        self.seen = event.number
        good_ms = min(event.lease_ms, 2 * event.lease_ms - self._late_ms(event.number, now_ms))
        if event.permits > 0 and good_ms > 0:
            self.hand = sorted([*self.hand, (now_ms + good_ms, event.permits)])
        elif event.permits > 0:
            # If it is the clocks that have moved apart, some order soon comes in time again.
            self.quickest_ms += event.lease_ms
        return True

    def _late_ms(self, number: int, now_ms: int) -> int:
        """How much longer an order was on its way than the quickest one."""
        took_ms = now_ms - given_ms(number)
        self.quickest_ms = min(self.quickest_ms, took_ms)
        return took_ms - self.quickest_ms

    def lapse(self, now_ms: int) -> bool:
        """Whether permits in hand were good until now."""
        if not self.hand or self.hand[0][0] > now_ms:
            return False
        self.hand = [(at, count) for at, count in self.hand if at > now_ms]
        return True

    def succeeded(self, span_ms: int) -> None:
        """An attempt went well."""
        self.successes += 1
        self.span_ms += span_ms
        self.in_a_row = 0

    def slowed(self, count: int) -> None:
        """So many attempts in a row were slow."""
        self.slow = max(self.slow, count)

    def failed(self, error_class: str, retry_after_ms: int, now_ms: int) -> None:
        """An attempt failed by this fault point."""
        self.failures += 1
        self.in_a_row += 1
        self.error_class = error_class
        self.retry_after_ms = max(self.retry_after_ms, retry_after_ms)
        self.failed_ms = now_ms

    def news(self, now_ms: int, interval_ms: int, *, outcome: bool) -> None:
        """There is something to say, and not later than this."""
        wait_ms = interval_ms if outcome else interval_ms * _QUIET
        due_ms = max(now_ms, self.reported_ms + wait_ms)
        if not self.due_ms or due_ms < self.due_ms:
            self.due_ms = due_ms

    def report(
        self, partition: int, *, waiting: int, running: int, usual_ms: int, offset: int, index: int
    ) -> FaultReport:
        """What is to be said now."""
        return FaultReport(
            fault_point=self.name,
            partition=partition,
            failures=self.failures,
            successes=self.successes,
            waiting=waiting,
            rtt_ms=self.span_ms // self.successes if self.successes else 0,
            last_error_class=self.error_class,
            offset=offset,
            index=index,
            seen=self.seen,
            running=running,
            unspent=self.permits,
            in_a_row=self.in_a_row,
            baseline_ms=usual_ms,
            retry_after_ms=self.retry_after_ms,
            slow=self.slow,
        )

    def reported(self, now_ms: int, waiting: int, *, alive: bool) -> None:
        """It was said. `alive`: something waits or is out, so that more will follow."""
        self.failures = self.successes = self.span_ms = self.retry_after_ms = 0
        self.in_a_row = self.slow = 0
        self.reported_ms = now_ms
        self.waiting = waiting
        self.due_ms = now_ms + KEEPALIVE_MS if alive else 0
