"""Verdicts that rest on a hello or a mark, until their attempt leaves."""

from __future__ import annotations

from collections.abc import Iterator

from dalsegno.schemas.control import Verdict
from dalsegno.streams.core.liveness.settings import LivenessSettings
from dalsegno.streams.core.liveness.watches import Key


def repeat_after_ms(settings: LivenessSettings, times_said: int) -> int:
    """How long a verdict that was said so often waits before it is said again (ms)."""
    return min(settings.repeat_ms << min(times_said - 1, 30), settings.repeat_ms_max)


AT_ONCE_MAX = 3
"""A verdict that the log has and the fold did not take is said again at once so often, no more."""


class Finding:
    """One verdict on one attempt. `next_ms`: when to say it (again), on the partition clock.

    `asked`: it was due at the moment that is being judged. `said_at`: offset in the events of the
    verdict as it was said last, -1 while none is known. `at_once`: how often it was said again
    without waiting.
    """

    __slots__ = (
        "asked",
        "at_once",
        "elapsed_ms",
        "epoch",
        "evidence",
        "incarnation",
        "key",
        "next_ms",
        "said_at",
        "threshold_ms",
        "times_said",
        "verdict",
        "worker",
    )

    def __init__(
        self,
        key: Key,
        epoch: int,
        verdict: Verdict,
        *,
        worker: str = "",
        incarnation: int = 0,
        next_ms: int = 0,
        elapsed_ms: int = 0,
        threshold_ms: int = 0,
        evidence: str = "",
    ) -> None:
        self.key, self.epoch, self.verdict = key, epoch, verdict
        self.worker, self.incarnation = worker, incarnation
        self.next_ms, self.times_said = next_ms, 0
        self.asked, self.said_at, self.at_once = False, -1, 0
        self.elapsed_ms, self.threshold_ms = elapsed_ms, threshold_ms
        self.evidence = evidence


class Findings:
    """At most one finding of each verdict per attempt in flight, plus last words on ended ones.

    A finding is said once, and again after a growing bound while its attempt is still in flight;
    sooner when it is known that it was not appended, or that the fold has passed it and the attempt
    stands: then a report outran it, and what the monitor has read since is newer.
    """

    __slots__ = ("_last_words", "_open", "_settings")

    def __init__(self, settings: LivenessSettings) -> None:
        self._settings = settings
        self._open: dict[Key, dict[Verdict, Finding]] = {}
        self._last_words: list[Finding] = []

    def __len__(self) -> int:
        return len(self._open) + len(self._last_words)

    def add(self, finding: Finding) -> None:
        """Keep a finding, unless the same verdict on the same epoch is known."""
        of_key = self._open.setdefault(finding.key, {})
        known = of_key.get(finding.verdict)
        if known is None or known.epoch != finding.epoch:
            of_key[finding.verdict] = finding

    def add_once(self, finding: Finding) -> None:
        """Keep a finding on an epoch that is over: it is said once, whatever its attempt does."""
        known = self._open.get(finding.key, {}).get(finding.verdict)
        if known is None or known.epoch != finding.epoch or not known.times_said:
            self._last_words.append(finding)

    def drop(self, key: Key) -> None:
        """The attempt left, or started."""
        self._open.pop(key, None)

    def ask(self, now_ms: int, events_offset: int) -> bool:
        """Mark what is to be said at `now_ms`; return whether that is anything.

        `events_offset`: the fold has applied the events below it.
        """
        for finding in self._last_words:
            finding.asked = True
        found = bool(self._last_words)
        for finding in self._all_open():
            if 0 <= finding.said_at < events_offset and finding.at_once < AT_ONCE_MAX:
                finding.said_at = -1
                finding.at_once += 1
                finding.next_ms = now_ms
            finding.asked = finding.next_ms <= now_ms
            found = found or finding.asked
        return found

    def due(self, now_ms: int) -> Iterator[Finding]:
        """What was marked at `now_ms`; each is counted as said. What came since waits."""
        last_words = [finding for finding in self._last_words if finding.asked]
        self._last_words = [finding for finding in self._last_words if not finding.asked]
        yield from last_words
        for finding in self._all_open():
            if finding.asked:
                finding.asked = False
                finding.said_at = -1
                finding.times_said += 1
                finding.next_ms = now_ms + repeat_after_ms(self._settings, finding.times_said)
                yield finding

    def appended(self, key: Key, epoch: int, verdict: Verdict, offset: int) -> None:
        """What was said stands in the events at `offset`."""
        finding = self._find(key, epoch, verdict)
        if finding is not None:
            finding.said_at = offset

    def not_appended(self, lost: Finding) -> None:
        """What was said is perhaps not in the events: the next question says it again."""
        finding = self._find(lost.key, lost.epoch, lost.verdict)
        if finding is not None:
            finding.next_ms = 0
        elif lost.verdict is Verdict.LOST:
            self._last_words.append(lost)

    def _find(self, key: Key, epoch: int, verdict: Verdict) -> Finding | None:
        finding = self._open.get(key, {}).get(verdict)
        return finding if finding is not None and finding.epoch == epoch else None

    def _all_open(self) -> Iterator[Finding]:
        for of_key in self._open.values():
            yield from of_key.values()
