"""What is kept of one run while its signals are told."""

from __future__ import annotations

from typing import Final

from dalsegno.schemas.outputs import Escalation, RunState
from dalsegno.streams.core.signals.missing import Finding

FINDINGS_MAX: Final = 16
"""Kept of one run; the first say what was missing, the rest are counted."""


class Story:
    """One run. `attempts` by step; `broken`: steps that are damaged, since when (log time, ms).

    `asked`: open questions by step, since when; `ever_asked`: steps asked about so far (empty text:
    the run as a whole); `causes`: the cause of the open question, and `decided` those decided on.
    """

    __slots__ = (
        "asked", "attempts", "broken", "causes", "decided", "ever_asked", "findings", "flow",
        "more", "state",
    )  # fmt: skip

    def __init__(self, flow: str, state: RunState | None = None) -> None:
        self.flow = flow
        self.state = state
        self.attempts: dict[str, int] = {}
        self.broken: dict[str, int] = {}
        self.asked: dict[str, int] = {}
        self.ever_asked: set[str] = set()
        self.causes: dict[str, str] = {}
        self.decided: set[str] = set()
        self.findings: list[Finding] = []
        self.more = 0

    def note(self, finding: Finding) -> None:
        """One more trouble."""
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(finding)
        else:
            self.more += 1

    def ask(self, escalation: Escalation) -> tuple[bool, bool]:
        """A question is put: whether there was one about the same step before, and whether that is
        still open, and replaced by this one.
        """
        step = escalation.step
        before = step in self.ever_asked, step in self.asked
        self.ever_asked.add(step)
        self.asked[step] = escalation.at_ms
        self.causes[step] = escalation.cause
        return before

    def begin_again(self, flow: str) -> Story:
        """A run of the same id: what was found before stays with it."""
        story = Story(flow)
        story.findings, story.more = self.findings, self.more
        return story

    def decide(self, step: str) -> int | None:
        """A decision is taken. Returns since when it was waited for, if it was."""
        cause = self.causes.pop(step, "")
        if cause:
            self.decided.add(cause)
        return self.asked.pop(step, None)
