"""Verdicts that rest on absence: `silent` and `stuck`, from deadlines on the partition clock."""

from __future__ import annotations

from collections.abc import Iterator

from dalsegno.schemas.control import Verdict
from dalsegno.streams.core.liveness.deadlines import Deadlines
from dalsegno.streams.core.liveness.findings import Finding
from dalsegno.streams.core.liveness.settings import LivenessSettings
from dalsegno.streams.core.liveness.watches import Watches

_TIMES_MAX = 200
_PER_S_MS = 1_000


class Silence:
    """Deadlines of running attempts: the earlier of silence and lack of progress."""

    __slots__ = ("_allowance", "_deadlines", "_refilled_ms", "_settings", "_watches")

    def __init__(self, watches: Watches, settings: LivenessSettings) -> None:
        self._watches = watches
        self._settings = settings
        self._deadlines = Deadlines(watches.check_ms)
        self._allowance = settings.verdicts_per_s * _PER_S_MS
        self._refilled_ms = 0

    def watch(self, slot: int) -> None:
        """Set the deadline of a slot."""
        self._deadlines.put(slot, self._next_ms(slot), len(self._watches))

    def begin(self, slot: int) -> None:
        """A slot was just added, and is looked at with the next question: most attempts of a log
        that is caught up with are over by then, and never need a deadline.
        """
        self._deadlines.put(slot, self._watches.heard_ms[slot], len(self._watches))

    def anchor(self, at_ms: int) -> None:
        """The clock starts at append time `at_ms`: slots hold append times until now."""
        for slot in self._watches:
            begun_ms = max(0, self._watches.heard_ms[slot] - at_ms)
            self._watches.heard_ms[slot] = self._watches.moved_ms[slot] = begun_ms
            self.watch(slot)

    def heard(self, slot: int, progress: int, now_ms: int) -> None:
        """A heartbeat of the attempt in the slot was read at `now_ms`."""
        watches = self._watches
        kind = watches.kind[slot]
        gap_ms = now_ms - watches.heard_ms[slot]
        # An attempt can begin ahead of the clock, where its heartbeats are not read yet.
        kind.learned.gaps.observe(max(0, gap_ms))
        watches.heard_ms[slot] = now_ms
        if progress > watches.progress[slot]:
            stretch_ms = max(0, now_ms - watches.moved_ms[slot])
            kind.learned.pace.observe(stretch_ms, kind.limit_ms)
            watches.progress[slot], watches.moved_ms[slot] = progress, now_ms
            if watches.stuck[slot]:
                watches.stuck[slot] = 0
                self.watch(slot)
        if watches.silent[slot]:
            watches.silent[slot] = 0
            self.watch(slot)

    def finished(self, slot: int, now_ms: int) -> None:
        """The attempt completed: learn how long it was quiet, and how long without progress.

        A last silence within the declared interval is no gap between heartbeats and teaches
        nothing; a longer one that ended well does.
        """
        kind = self._watches.kind[slot]
        quiet_ms = now_ms - self._watches.heard_ms[slot]
        if quiet_ms > kind.interval_ms:
            kind.learned.gaps.observe(quiet_ms)
        kind.learned.pace.observe(max(0, now_ms - self._watches.moved_ms[slot]), kind.limit_ms)

    def any_due(self, now_ms: int) -> bool:
        """Whether a deadline lies before `now_ms`; entries that are out of date are put right."""
        while (slot := self._deadlines.pop(now_ms - 1)) is not None:
            at_ms = self._next_ms(slot)
            self._deadlines.put(slot, at_ms, len(self._watches))
            if at_ms < now_ms:
                return True
        return False

    def due(self, now_ms: int) -> Iterator[Finding]:
        """Findings whose deadline lies before `now_ms`, as far as the rate allows."""
        self._refill(now_ms)
        while self._allowance >= _PER_S_MS:
            slot = self._deadlines.pop(now_ms - 1)
            if slot is None:
                return
            finding = self._judge(slot, now_ms)
            if finding is not None:
                self._allowance -= _PER_S_MS
                yield finding
            # At `now_ms` at the earliest: what is due again already waits for the next question.
            at_ms = max(self._next_ms(slot), now_ms)
            self._deadlines.put(slot, at_ms, len(self._watches))

    def _refill(self, now_ms: int) -> None:
        rate = self._settings.verdicts_per_s
        passed_ms, self._refilled_ms = now_ms - self._refilled_ms, now_ms
        self._allowance = min(rate * _PER_S_MS, self._allowance + rate * passed_ms)

    def _judge(self, slot: int, now_ms: int) -> Finding | None:
        watches = self._watches
        if now_ms > self._silent_ms(slot):
            watches.silent[slot] = min(watches.silent[slot] + 1, _TIMES_MAX)
            heard_ms, threshold_ms = watches.heard_ms[slot], watches.kind[slot].dead_ms()
            return self._finding(slot, Verdict.SILENT, now_ms - heard_ms, threshold_ms)
        stuck_ms = self._stuck_ms(slot)
        if stuck_ms is not None and now_ms > stuck_ms:
            watches.stuck[slot] = min(watches.stuck[slot] + 1, _TIMES_MAX)
            moved_ms, threshold_ms = watches.moved_ms[slot], watches.kind[slot].slow_ms() or 0
            return self._finding(slot, Verdict.STUCK, now_ms - moved_ms, threshold_ms)
        return None

    def _next_ms(self, slot: int) -> int:
        silent_ms, stuck_ms = self._silent_ms(slot), self._stuck_ms(slot)
        # What is silent is not known to be alive, so it cannot be stuck.
        if stuck_ms is None or self._watches.silent[slot]:
            return silent_ms
        return min(silent_ms, stuck_ms)

    def _silent_ms(self, slot: int) -> int:
        watches = self._watches
        deadline_ms = watches.heard_ms[slot] + watches.kind[slot].dead_ms()
        return deadline_ms + self._said_ms(watches.silent[slot])

    def _stuck_ms(self, slot: int) -> int | None:
        watches = self._watches
        slow_ms = watches.kind[slot].slow_ms()
        if slow_ms is None:
            return None
        return watches.moved_ms[slot] + slow_ms + self._said_ms(watches.stuck[slot])

    def _said_ms(self, times: int) -> int:
        """Extra time until a verdict that was said `times` times is said again."""
        if not times:
            return 0
        doubled_ms = self._settings.repeat_ms * ((1 << min(times, 40)) - 1)
        return min(doubled_ms, times * self._settings.repeat_ms_max)

    def _finding(self, slot: int, verdict: Verdict, elapsed_ms: int, threshold_ms: int) -> Finding:
        key = self._watches.keys[slot]
        assert key is not None, "a slot that is due is in use"
        process = self._watches.process[slot]
        return Finding(
            key,
            self._watches.epoch[slot],
            verdict,
            worker=process.name if process else "",
            incarnation=process.incarnation if process else 0,
            elapsed_ms=elapsed_ms,
            threshold_ms=threshold_ms,
        )
