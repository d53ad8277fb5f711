"""Reads the signals of a partition off its log: records and what the fold put out for each.

Memory: a story for each open run and each that was in trouble, a name for each that has ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from dalsegno.schemas.control import DecisionMade
from dalsegno.schemas.events import RunStarted, StepCompleted, StepFailed
from dalsegno.schemas.outputs import Escalation, Outcome, RunState, Transition
from dalsegno.streams.core.actions import Audit, Escalate, Output, PutAside
from dalsegno.streams.core.record import Record
from dalsegno.streams.core.run_table import FINAL_RUNS
from dalsegno.streams.core.signals.meaning import (
    CONFLICTS,
    asks,
    begun,
    is_damage,
    is_given_up,
    is_mended,
)
from dalsegno.streams.core.signals.missing import (
    Finding,
    of_letter,
    of_question,
    of_transition,
)
from dalsegno.streams.core.signals.story import Story
from dalsegno.streams.core.signals.sums import Sums
from dalsegno.streams.core.step_table import AWAITING_APPROVAL, ESCALATED, MISSING_INFO

_START: Final = RunStarted.__name__
_DECISION: Final = DecisionMade.__name__
_WAITS_FOR_PEOPLE: Final = frozenset({ESCALATED, MISSING_INFO, AWAITING_APPROVAL})
# Reports whose own words say what was missing; those that wait for their run are kept until then.
_TELLING: Final = (StepCompleted, StepFailed)


class _Ended(NamedTuple):
    """What stays of a run that ended well; equal ones are one object."""

    flow: str
    state: RunState | None


class Tally:
    """Sees each record of one partition once, in order."""

    def __init__(self, partition: int) -> None:
        self._partition = partition
        self._sums: dict[str, Sums] = {}
        self._open: dict[str, Story] = {}
        self._ended: dict[str, _Ended] = {}
        self._ends: dict[_Ended, _Ended] = {}
        self._troubled: dict[str, Story] = {}
        self._early: dict[str, int] = {}
        self._words: dict[str, dict[int, object]] = {}

    def see(self, record: Record, outputs: Iterable[Output]) -> None:
        """One record and its outputs."""
        event = record.event
        run_id = getattr(event, "run_id", "")
        if run_id:
            self._count(run_id)
            if isinstance(event, _TELLING):
                self._words.setdefault(run_id, {})[record.offset] = event
        asked: list[Escalation] = []
        for output in outputs:
            action = output.action
            if isinstance(action, Audit):
                self._transition(action.transition, event)
                # A unit asks before it is on record, and what it closes was asked before.
                self._questions(asked)
            elif isinstance(action, Escalate):
                asked.append(action.escalation)
            elif isinstance(action, PutAside):
                letter = action.letter
                self._words.get(letter.run_id, {}).pop(letter.offset, None)
                self._note(letter.run_id, of_letter(letter))
        self._questions(asked)

    def sums(self) -> dict[str, Sums]:
        """The sums by flow, as of the last record. The tally goes on from where it stands."""
        found = {flow: Sums() for flow in self._sums}
        for flow, sums in self._sums.items():
            found[flow].add(sums)
        for story in self._open.values():
            found[story.flow].leave(story)
        for stories in (self._open, self._troubled):
            for run_id, story in stories.items():
                found[story.flow].tell_of(run_id, self._partition, story)
        return found

    def _of(self, run_id: str) -> Sums | None:
        """The sums of a run's flow; None while its start has not been read."""
        story = self._open.get(run_id) or self._ended.get(run_id)
        return None if story is None else self._sums[story.flow]

    def _count(self, run_id: str) -> None:
        sums = self._of(run_id)
        if sums is None:
            self._early[run_id] = self._early.get(run_id, 0) + 1
        else:
            sums.events += 1

    def _note(self, run_id: str, finding: Finding) -> None:
        story = self._open.get(run_id)
        if story is None and (ended := self._ended.get(run_id)) is not None:
            story = self._troubled.setdefault(run_id, Story(ended.flow, ended.state))
        if story is not None:
            story.note(finding)

    def _transition(self, transition: Transition, event: object) -> None:
        """One transition. `event` is the record's; what waited speaks for itself."""
        run_id = transition.run_id
        words = self._words.get(run_id)
        said = None if words is None else words.pop(transition.cause_offset, None)
        if transition.cause == _START and isinstance(event, RunStarted):
            self._start(transition, event)
        sums = self._of(run_id)
        if sums is None:
            return
        if type(event).__name__ != transition.cause:
            event = said if type(said).__name__ == transition.cause else None
        for finding in of_transition(transition, event):
            self._note(run_id, finding)
        sums.superseded += transition.outcome is Outcome.SUPERSEDED
        sums.refused += transition.outcome is Outcome.REFUSED
        story = self._open.get(run_id)
        if story is None:
            return
        if transition.outcome not in CONFLICTS:
            self._moved(sums, story, transition)
        if transition.run_state_after in FINAL_RUNS:
            self._end(sums, run_id, story)

    def _start(self, transition: Transition, event: RunStarted) -> None:
        """A run begins, or its start is refused; a refused one may begin later."""
        run_id = transition.run_id
        refused = transition.outcome is Outcome.REFUSED
        if run_id in self._open or (refused and run_id in self._ended):
            return
        sums = self._sums.setdefault(event.flow, Sums())
        sums.events += self._early.pop(run_id, 0)
        before = self._troubled.pop(run_id, None)
        story = Story(event.flow)
        if before is not None:
            story = before.begin_again(event.flow)
        self._ended.pop(run_id, None)
        self._open[run_id] = story
        if refused:
            self._end(sums, run_id, story)

    def _moved(self, sums: Sums, story: Story, transition: Transition) -> None:
        """What an applied transition does to attempts, damage and questions."""
        story.state = transition.run_state_after
        step = begun(transition)
        if step:
            story.attempts[step] = story.attempts.get(step, 0) + 1
        if transition.cause == _DECISION:
            since_ms = story.decide(transition.step)
            if since_ms is not None:
                sums.decided_ms.append(transition.at_ms - since_ms)
        for change in transition.changes:
            if is_damage(change, transition):
                story.broken.setdefault(change.step, transition.at_ms)
            elif is_mended(change):
                since_ms = story.broken.pop(change.step, None)
                if since_ms is not None:
                    sums.recovered_ms.append(transition.at_ms - since_ms)
            elif is_given_up(change):
                sums.given_up += story.broken.pop(change.step, None) is not None
            if change.before in _WAITS_FOR_PEOPLE and change.after not in _WAITS_FOR_PEOPLE:
                sums.unanswered += story.asked.pop(change.step, None) is not None

    def _questions(self, asked: list[Escalation]) -> None:
        for escalation in asked:
            story = self._open.get(escalation.run_id)
            if story is None or not asks(escalation):
                continue
            sums = self._sums[story.flow]
            decided_before = escalation.cause in story.decided
            for finding in of_question(escalation, decided_before=decided_before):
                story.note(finding)
            again, replaced = story.ask(escalation)
            sums.asked += 1
            sums.again += again
            sums.unanswered += replaced
        asked.clear()

    def _end(self, sums: Sums, run_id: str, story: Story) -> None:
        sums.close(story)
        del self._open[run_id]
        self._words.pop(run_id, None)
        if story.findings:
            self._troubled[run_id] = story
        ended = _Ended(story.flow, story.state)
        self._ended[run_id] = self._ends.setdefault(ended, ended)
