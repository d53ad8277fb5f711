"""What a group left behind, read from Kafka and from what its workers and clients wrote down.

The newest state of each run is rebuilt here from the events that were applied, by nothing but the
contract: no code of the fold takes part.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from tests.integration.engine.harness import Lab
from tests.integration.four_groups.interrupting import lines_of

from dalsegno.client import RunView
from dalsegno.schemas import values
from dalsegno.schemas.codec import decode
from dalsegno.schemas.control import DecisionMade
from dalsegno.schemas.events import InformationSupplied, RunStarted, StepCompleted
from dalsegno.schemas.outputs import Handoff, Outcome, Transition
from dalsegno.schemas.plan import Plan, StepPlan
from dalsegno.streams.core.sequence import Sequence

Values = dict[str, values.Value]


class State(NamedTuple):
    """A run after one transition: where in the log, at which version, with which context."""

    sequence: Sequence
    run_version: int
    context: Values


@dataclass
class Story:
    """One run: its plan, its transitions in order, and its state after each."""

    plan: Plan
    transitions: list[tuple[Sequence, Transition]] = field(default_factory=list)
    states: list[State] = field(default_factory=list)

    @property
    def steps(self) -> dict[str, StepPlan]:
        return {step.name: step for step in self.plan.steps}

    def version(self, run_version: int) -> State:
        """The state of that version. Raises `StopIteration` when the run never had it."""
        return next(each for each in reversed(self.states) if each.run_version == run_version)

    def after(self, sequence: Sequence) -> State:
        """The state after the unit that put this output out: its transition comes behind it."""
        places = [(each.sequence.offset, each.sequence.index) for each in self.states]
        at = bisect_right(places, (sequence.offset, sequence.index))
        return self.states[at]

    def newest(self, below: int) -> State:
        """The newest state by the events below this offset."""
        return [each for each in self.states if each.sequence.offset < below][-1]


class Given(NamedTuple):
    """A handoff as it lies in a queue."""

    queue: str
    sequence: Sequence
    handoff: Handoff
    size_bytes: int
    raw: bytes


class Read(NamedTuple):
    """What the body of an attempt was about to be given, by its worker's own word."""

    run_id: str
    step: str
    epoch: int
    run_version: int
    digest: str


class Sample(NamedTuple):
    """What a client or an engine said of a run."""

    by: str
    run_id: str
    run_version: int
    position: int
    context: Values
    secrets: tuple[str, ...]

    @classmethod
    def of(cls, by: str, view: RunView) -> Sample:
        """A view that has a context."""
        return cls(
            by, view.run_id, view.run_version, view.position, view.context or {},
            view.secrets_omitted,
        )  # fmt: skip


@dataclass
class Evidence:
    """All of it. `events` by (partition, offset); `messages`: raw values by topic."""

    events: dict[tuple[int, int], object]
    stories: dict[str, Story]
    given: list[Given]
    reads: list[Read]
    messages: dict[str, list[bytes]]


def gather(lab: Lab, queues: tuple[str, ...], folder: Path) -> Evidence:
    """Reads everything, of a lab at rest."""
    topics = lab.topics
    events: dict[tuple[int, int], object] = {}
    stories: dict[str, Story] = {}
    for partition in range(lab.partitions):
        for message in lab.read(topics.events, partition):
            events[partition, message.offset() or 0] = decode(message.value() or b"")
    for partition, kept in lab.ordered(topics.transitions).items():
        for sequence, message in kept:
            transition = decode(message.value())
            assert isinstance(transition, Transition)
            event = events[partition, transition.cause_offset]
            tell(stories, sequence, transition, event)
    given = [
        Given(queue, sequence, _handoff(message.value()), len(message.value()), message.value())
        for queue in queues
        for kept in lab.ordered(topics.queue(queue)).values()
        for sequence, message in kept
    ]
    reads = [Read(*line) for path in sorted(folder.glob("*.reads")) for line in lines_of(path)]
    messages = {
        topic: [m.value() or b"" for p in range(lab.partitions) for m in lab.read(topic, p)]
        for topic in (topics.heartbeats, topics.control)
    }
    return Evidence(events, stories, given, reads, messages)


def _handoff(value: bytes) -> Handoff:
    handoff = decode(value)
    assert isinstance(handoff, Handoff)
    return handoff


def tell(
    stories: dict[str, Story], sequence: Sequence, transition: Transition, event: object
) -> None:
    """One more transition, and the event that caused it (or moved the clock, for a timer)."""
    applied = transition.outcome is Outcome.APPLIED and type(event).__name__ == transition.cause
    if applied and isinstance(event, RunStarted):
        stories[transition.run_id] = Story(event.plan)
    story = stories.get(transition.run_id)
    if story is None:
        return  # a start that was refused
    story.transitions.append((sequence, transition))
    context = dict(story.states[-1].context) if story.states else {}
    if applied and isinstance(event, RunStarted):
        context = values.unpack_map(event.context)
    elif applied and isinstance(event, StepCompleted):
        done = any(c.step == event.step and c.after == "completed" for c in transition.changes)
        _write(context, event.ops if done else b"")
    elif applied and isinstance(event, InformationSupplied | DecisionMade):
        _write(context, event.ops)
    story.states.append(State(sequence, transition.run_version_after, context))


def _write(context: Values, ops: bytes) -> None:
    for op in values.unpack(ops) if ops else []:  # type: ignore[union-attr]
        kind, (name,), value = op  # type: ignore[misc]
        assert kind == "set", f"the examples only set whole fields, not {kind!r}"
        context[str(name)] = value


def fields_of(step: StepPlan) -> set[str]:
    """Every field that a step may write."""
    return set(chain(step.writes, step.may_write))
