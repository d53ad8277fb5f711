"""What reports, time and people do to a fault point (the rules are in `point`).

`Steering` works on one point at one log time and collects the control events that come of it.
"""

from __future__ import annotations

from typing import Final

from dalsegno.schemas.control import BreakerState, FaultPointChanged, QuotaGranted
from dalsegno.schemas.faults import FaultPointSet, HandAction, HealthReported
from dalsegno.schemas.outputs import FaultReport
from dalsegno.streams.core.faultpoint.pauses import open_for_ms
from dalsegno.streams.core.faultpoint.point import HAND_KEPT, FaultPoint, Hand, Phase, Probe
from dalsegno.streams.core.faultpoint.settings import PointSettings
from dalsegno.streams.core.faultpoint.sides import Side, share

Order = FaultPointChanged | QuotaGranted

_STATE: Final = {
    Phase.HEALTHY: BreakerState.CLOSED,
    Phase.OPEN: BreakerState.OPEN,
    Phase.HALF_OPEN: BreakerState.HALF_OPEN,
    Phase.RAMPING: BreakerState.CLOSED,
}
_REASON_CHARS_MAX: Final = 256


class Steering:
    """One point at one moment. `partitions`: of the events topic; all hear that it is healthy, or
    no longer; what lies between concerns those that wait or have permits.
    """

    def __init__(
        self, point: FaultPoint, now_ms: int, partitions: int, settings: PointSettings
    ) -> None:
        self.orders: list[Order] = []
        self._point = point
        self._now_ms = now_ms
        self._partitions = partitions
        self._s = settings

    def report(self, report: FaultReport) -> bool:
        """Takes a partition's report. False when it was taken before."""
        point, now_ms = self._point, self._now_ms
        side = point.side(report.partition)
        if not side.is_new(report):
            return False
        current = side.seen >= point.since or report.seen >= point.since
        side.take(report, now_ms)
        if report.baseline_ms > 0:
            before = point.baseline_ms or report.baseline_ms
            point.baseline_ms = max(1, (3 * before + report.baseline_ms) // 4)
        point.failures += report.failures
        point.successes += report.successes
        if report.failures:
            point.error_class = report.last_error_class
        if point.phase is Phase.HEALTHY:
            self._while_healthy(report, side, current=current)
        elif point.phase is Phase.HALF_OPEN:
            self._while_probing(report, side)
        elif point.phase is Phase.RAMPING and current:
            self._while_ramping(report)
        self.advance()
        return True

    def _while_healthy(self, report: FaultReport, side: Side, *, current: bool) -> None:
        point = self._point
        self._count(report)
        if point.in_a_row >= self._s.failures_to_open:
            self._open(f"{point.in_a_row} failures in a row")
        elif report.slow and current:
            self._ramp(f"{report.slow} attempts in a row were slow")
        elif side.waiting and current:
            # It waits for something that we know nothing about: our state was lost meanwhile.
            self._ramp("steps wait")
        elif not current:
            # Said ahead of hearing that all is well: its line and its permits are gone by now.
            side.waiting = side.running = side.unspent = 0

    def _while_probing(self, report: FaultReport, side: Side) -> None:
        point = self._point
        probe = point.probe
        if probe is None:
            # Nobody waits: it is tried by services that drive themselves, or by none.
            if report.seen < point.entered:
                return
        elif report.partition != probe.partition or report.seen < probe.number:
            return
        if report.successes:
            self._count(report)
            self._ramp("the probe succeeded")
            self._grow(report)
        elif report.failures:
            self._count(report)
            self._open("the probe failed")
        elif not side.out:
            # Nobody was there to use it, or it was given back: no blame, another may have it.
            point.probe = None

    def _while_ramping(self, report: FaultReport) -> None:
        self._count(report)
        point, now_ms = self._point, self._now_ms
        if point.in_a_row >= self._s.failures_to_open:
            self._open(f"{point.in_a_row} failures in a row")
            return
        if report.failures:
            point.calm_ms = 0
            point.window.failed(now_ms, self._s)
            asked_ms = min(report.retry_after_ms, self._s.retry_after_max_ms)
            point.quiet_ms = max(point.quiet_ms, now_ms + asked_ms)
        self._grow(report)

    def _grow(self, report: FaultReport) -> None:
        point = self._point
        if not report.successes:
            return
        # As it was before these came home.
        used = point.out + report.successes + report.failures
        cut = point.window.succeeded(
            report.successes,
            report.rtt_ms,
            baseline_ms=point.baseline_ms,
            busy=used * 100 >= point.window.permits * self._s.busy_percent,
            at_ms=self._now_ms,
            s=self._s,
        )
        if cut:
            point.calm_ms = 0

    def _count(self, report: FaultReport) -> None:
        point = self._point
        point.retry_after_ms = max(point.retry_after_ms, report.retry_after_ms)
        if report.successes:
            point.in_a_row = min(report.in_a_row, report.failures)
            if not report.in_a_row:
                point.retry_after_ms = 0
        else:
            point.in_a_row += report.failures

    def advance(self) -> None:
        """Does what is due, and gives out what is free."""
        point, now_ms, s = self._point, self._now_ms, self._s
        if point.phase is Phase.HEALTHY:
            return
        for side in point.sides.values():
            side.lapse(now_ms, s)
        if point.phase is Phase.OPEN and now_ms >= point.until_ms:
            point.timed = False
        if point.phase is Phase.OPEN and point.ready_to_probe(now_ms, s):
            point.probe = None
            self._enter(Phase.HALF_OPEN, "time to try")
        if point.phase is Phase.HALF_OPEN:
            self._probe()
        elif point.phase is Phase.RAMPING:
            self._ration()

    def _probe(self) -> None:
        point, now_ms, s = self._point, self._now_ms, self._s
        probe = point.probe
        if probe is not None:
            if now_ms < probe.lapses_ms:
                return
            out = point.side(probe.partition).running
            if out and now_ms - probe.since_ms < s.probe_max_ms:
                point.probe = Probe(
                    probe.partition, probe.number, probe.since_ms, now_ms + s.lease_ms
                )
            else:
                # A probe without an answer is a failure: else the breaker would be stuck half open.
                self._open("the probe was not heard of again")
            return
        chosen = min(
            ((side.served, number) for number, side in point.sides.items() if side.wants),
            default=None,
        )
        if chosen is not None:
            number = self._grant(chosen[1], 1)
            point.probe = Probe(chosen[1], number, now_ms, now_ms + s.lease_ms)

    def _ration(self) -> None:
        point, now_ms, s = self._point, self._now_ms, self._s
        if now_ms >= point.quiet_ms:
            point.quiet_ms = 0
            for number, permits in share(point.sides, point.size - point.out).items():
                self._grant(number, permits)
        met = not any(side.wants for side in point.sides.values())
        if not met or point.limit:
            point.calm_ms = 0
        elif not point.calm_ms:
            point.calm_ms = now_ms
        elif now_ms - point.calm_ms >= s.calm_ms:
            self._recover()

    def _grant(self, partition: int, permits: int) -> int:
        point = self._point
        number = point.next_number(self._now_ms)
        point.side(partition).grant(number, permits, self._now_ms + 2 * self._s.lease_ms)
        self.orders.append(
            QuotaGranted(
                partition=partition,
                number=number,
                fault_point=point.name,
                permits=permits,
                lease_ms=self._s.lease_ms,
            )
        )
        return number

    def _open(self, reason: str) -> None:
        point, now_ms = self._point, self._now_ms
        point.openings += 1
        asked_ms = min(point.retry_after_ms, self._s.retry_after_max_ms)
        least_ms = max(point.open_ms, asked_ms)
        point.open_ms = open_for_ms(point.name, point.openings, least_ms, self._s)
        point.until_ms = now_ms + point.open_ms
        point.timed = True
        point.retry_after_ms = 0
        point.in_a_row = 0
        point.probe = None
        self._enter(Phase.OPEN, reason)

    def _ramp(self, reason: str) -> None:
        point = self._point
        point.openings = point.open_ms = point.in_a_row = point.calm_ms = point.quiet_ms = 0
        point.probe = None
        point.window.reset(self._now_ms)
        self._enter(Phase.RAMPING, reason)

    def _recover(self) -> None:
        self._enter(Phase.HEALTHY, "all demand met")
        point = self._point
        point.in_a_row = point.openings = point.open_ms = point.calm_ms = 0

    def _enter(self, phase: Phase, reason: str) -> None:
        """All partitions hear of the way out of health and back to it; else those concerned, or all
        when none is: then only services that drive themselves still call it.
        """
        point = self._point
        concerned = [number for number, side in sorted(point.sides.items()) if side.concerned]
        everyone = Phase.HEALTHY in (phase, point.phase) or not concerned
        point.phase, point.reason, point.changed_ms = phase, reason, self._now_ms
        heard = range(self._partitions) if everyone else concerned
        number = point.entered = point.next_number(self._now_ms)
        if phase is not Phase.HALF_OPEN:
            point.since = number
        for partition in heard:
            self.orders.append(self._changed(partition, number))
        if phase in (Phase.OPEN, Phase.HEALTHY):
            # The partitions forget their permits when they hear of it.
            for side in point.sides.values():
                side.grants, side.running, side.unspent = [], 0, 0
                if phase is Phase.HEALTHY:
                    # Its line goes, and nobody says so: of what is healthy nothing is reported.
                    side.waiting = 0

    def _changed(self, partition: int, number: int) -> FaultPointChanged:
        point = self._point
        # The window of a healthy fault point is called 0: there is none.
        window = 0 if point.phase is Phase.HEALTHY else max(1, point.size)
        return FaultPointChanged(
            partition=partition,
            number=number,
            fault_point=point.name,
            state=_STATE[point.phase],
            window=window,
            reason=point.reason[:_REASON_CHARS_MAX],
        )

    def health(self, event: HealthReported) -> bool:
        """A health check answered. It opens the way for a probe; it never closes the breaker."""
        point = self._point
        if event.number <= point.health_number:
            return False
        point.health_number = event.number
        point.health_detail = event.detail[:_REASON_CHARS_MAX]
        point.healthy_ms = self._now_ms if event.healthy else -1
        self.advance()
        return True

    def hand(self, event: FaultPointSet) -> bool:
        """A person steers. False when this one, or a later one, was taken before."""
        point = self._point
        if event.number <= point.hand_number:
            return False
        point.hand_number = event.number
        self._remember(event)
        by = f"by {event.decided_by}: {event.reason}"
        if event.action is HandAction.OPEN:
            point.held_open = True
            self._open(f"opened {by}")
        elif event.action is HandAction.CLOSE:
            point.held_open = False
            self._ramp(f"closed {by}")
        else:
            point.limit = max(0, event.limit)
            if point.limit and point.phase is Phase.HEALTHY:
                self._ramp(f"limited to {point.limit} {by}")
        self.advance()
        return True

    def _remember(self, event: FaultPointSet) -> None:
        hand = Hand(
            event.request_id,
            event.action,
            event.limit,
            event.decided_by[:_REASON_CHARS_MAX],
            event.reason[:_REASON_CHARS_MAX],
            self._now_ms,
        )
        self._point.hands = [*self._point.hands, hand][-HAND_KEPT:]

    def stood_still(self) -> None:
        """The service was away: what the window had learned is of another time."""
        point = self._point
        if point.phase is Phase.RAMPING:
            point.window.reset(self._now_ms)
            point.calm_ms = 0


def deadline_ms(point: FaultPoint, s: PointSettings) -> int | None:
    """When the point has something to do by itself; None when only an event can move it."""
    if point.phase is Phase.HEALTHY:
        return None
    times = [due for side in point.sides.values() if (due := side.next_lapse_ms(s)) is not None]
    if point.phase is Phase.OPEN and point.timed:
        times.append(point.until_ms)
    elif point.phase is Phase.HALF_OPEN and point.probe is not None:
        times.append(point.probe.lapses_ms)
    elif point.phase is Phase.RAMPING:
        if point.calm_ms:
            times.append(point.calm_ms + s.calm_ms)
        if point.quiet_ms:
            times.append(point.quiet_ms)
    return min(times, default=None)
