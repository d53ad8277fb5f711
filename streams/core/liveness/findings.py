"""Verdicts that rest on a hello or a mark, until their attempt leaves."""

from __future__ import annotations

from collections.abc import Iterator

from dalsegno.schemas.control import Verdict
from dalsegno.streams.core.liveness.settings import LivenessSettings
from dalsegno.streams.core.liveness.watches import Key


def repeat_after_ms(settings: LivenessSettings, times_said: int) -> int:
    """How long a verdict that was said so often waits before it is said again (ms)."""
    return min(settings.repeat_ms << min(times_said - 1, 30), settings.repeat_ms_max)


class Finding:
    """One verdict on one attempt. `next_ms`: when to say it (again), on the partition clock."""

    __slots__ = (
        "elapsed_ms",
        "epoch",
        "evidence",
        "incarnation",
        "key",
        "next_ms",
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
        self.elapsed_ms, self.threshold_ms = elapsed_ms, threshold_ms
        self.evidence = evidence


class Findings:
    """At most one finding of each verdict per attempt in flight, plus last words on ended ones.

    A finding is said once, and again after a growing bound while its attempt is still in flight.
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

    def any_due(self, now_ms: int) -> bool:
        """Whether anything is to be said at `now_ms`."""
        return bool(self._last_words) or any(
            finding.next_ms <= now_ms
            for of_key in self._open.values()
            for finding in of_key.values()
        )

    def due(self, now_ms: int) -> Iterator[Finding]:
        """What is to be said at `now_ms`; each is counted as said."""
        last_words, self._last_words = self._last_words, []
        yield from last_words
        for of_key in self._open.values():
            for finding in of_key.values():
                if finding.next_ms <= now_ms:
                    finding.times_said += 1
                    finding.next_ms = now_ms + repeat_after_ms(self._settings, finding.times_said)
                    yield finding
