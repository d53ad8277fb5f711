"""Sums of one flow over any number of partitions, and the report that they make."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from heapq import nlargest

from dalsegno.schemas.outputs import RunState
from dalsegno.streams.core.signals.figures import (
    Clarity,
    Conflicts,
    FlowReport,
    Recovery,
    Rework,
    Spread,
    Troubled,
)
from dalsegno.streams.core.signals.story import Story


@dataclass(slots=True)
class Sums:
    """What has been counted so far; durations in milliseconds."""

    states: Counter[RunState | None] = field(default_factory=Counter)
    recovered_ms: list[int] = field(default_factory=list)
    given_up: int = 0
    broken: int = 0
    attempts: int = 0
    steps: int = 0
    events: int = 0
    superseded: int = 0
    refused: int = 0
    asked: int = 0
    again: int = 0
    waiting: int = 0
    unanswered: int = 0
    decided_ms: list[int] = field(default_factory=list)
    troubled: list[Troubled] = field(default_factory=list)

    def close(self, story: Story) -> None:
        """A run has ended: what was damaged or asked stays so."""
        self.given_up += len(story.broken)
        self.unanswered += len(story.asked)
        self._worked(story)
        self.states[story.state] += 1

    def leave(self, story: Story) -> None:
        """A run goes on when the log ends."""
        self.broken += len(story.broken)
        self.waiting += len(story.asked)
        self._worked(story)
        self.states[story.state] += 1

    def _worked(self, story: Story) -> None:
        self.steps += len(story.attempts)
        self.attempts += sum(story.attempts.values())

    def tell_of(self, run_id: str, partition: int, story: Story) -> None:
        """Keeps a run that was in trouble."""
        found = tuple(story.findings)
        if found:
            last_ms = max(each.at_ms for each in found)
            self.troubled.append(
                Troubled(
                    run_id=run_id,
                    partition=partition,
                    state=story.state,
                    findings=found,
                    more=story.more,
                    last_ms=last_ms,
                )
            )

    def add(self, other: Sums) -> None:
        """Takes in what another partition has counted."""
        for name in self.__slots__:
            mine, theirs = getattr(self, name), getattr(other, name)
            setattr(self, name, mine + theirs)

    def report(self, flow: str, last: int) -> FlowReport:
        """The signals, and the `last` runs that were in trouble, newest trouble first."""
        newest = nlargest(last, self.troubled, key=lambda run: (run.last_ms, run.run_id))
        return FlowReport(
            flow=flow,
            runs=self.states.total(),
            states=dict(sorted(self.states.items(), key=lambda each: str(each[0]))),
            recovery=Recovery(
                took=Spread.of(self.recovered_ms), given_up=self.given_up, open=self.broken
            ),
            rework=Rework(attempts=self.attempts, steps=self.steps),
            conflicts=Conflicts(
                events=self.events, superseded=self.superseded, refused=self.refused
            ),
            clarity=Clarity(
                asked=self.asked,
                again=self.again,
                open=self.waiting,
                unanswered=self.unanswered,
                took=Spread.of(self.decided_ms),
            ),
            troubled_runs=len(self.troubled),
            troubled=tuple(newest),
        )
