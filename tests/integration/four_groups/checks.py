"""The four checks: the newest state everywhere, minimal messages, results that suffice, replay.

Each yields sentences about what is wrong, which begin with its word.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Final

from tests.integration.four_groups.flows import CANARY
from tests.integration.four_groups.observed import (
    Evidence,
    Given,
    Sample,
    Story,
    fields_of,
)
from tests.oracle.oracle import Recording

from dalsegno.schemas import values
from dalsegno.schemas.codec import decode
from dalsegno.schemas.events import StepCompleted, StepFailed, StepStarted
from dalsegno.schemas.outputs import Answer, AnswerType, Handoff, Outcome, StepState, Transition
from dalsegno.schemas.plan import StepPlan, StepRole
from dalsegno.streams.core.actions import Output
from dalsegno.streams.core.record import Record
from dalsegno.streams.core.run_table import FINAL_RUNS

# A handoff beside its inputs, effects, save and words: names, numbers, a fingerprint.
FRAME_BYTES_MAX: Final = 320
HEARTBEAT_BYTES_MAX: Final = 120
HELD_BYTES_MAX: Final = 90
ANSWER_BYTES_MAX: Final = 600
_ROUTED: Final = {
    "backing_off", "missing_info", "escalated", "ready", "held", "dispatched", "compensating",
    "skipped", "pending", "completed", "awaiting_approval",
}  # fmt: skip
_ACTIVE: Final = {
    "ready", "held", "dispatched", "running", "backing_off", "missing_info", "escalated",
    "awaiting_approval", "compensating",
}  # fmt: skip


class Owned(Recording):
    """The fold; after each return that it takes, it looks for what waits for nobody."""

    def apply(self, record: Record) -> list[Output]:
        outputs = super().apply(record)
        if not hasattr(self, "unowned"):
            self.unowned: list[str] = []
        if isinstance(record.event, StepCompleted | StepFailed):
            found = self.previews.unowned(record.event.run_id)
            self.unowned += [
                f"{each.run_id}/{each.step} {each.state}: {each.why}" for each in found
            ]
        return outputs


def newest(evidence: Evidence, samples: Iterable[Sample]) -> Iterator[str]:
    """Every consumer read the newest state: handoffs, workers' bodies, clients, engines."""
    digests: dict[tuple[str, str, int], tuple[int, str]] = {}
    for each in evidence.given:
        handoff, story = each.handoff, evidence.stories[each.handoff.run_id]
        what = f"newest: handoff {handoff.run_id}/{handoff.step}:{handoff.epoch}"
        state = story.after(each.sequence)
        if handoff.run_version != state.run_version:
            yield f"{what} names version {handoff.run_version}, newest is {state.run_version}"
        if differs := _other(handoff, story.steps[handoff.step], state.context):
            yield f"{what} was given another {', '.join(differs)}"
        digest = sha256(handoff.inputs).hexdigest()
        digests[handoff.run_id, handoff.step, handoff.epoch] = handoff.run_version, digest
    yield from _at_their_starts(evidence)
    for read in evidence.reads:
        given = digests.get((read.run_id, read.step, read.epoch))
        if given != (read.run_version, read.digest):
            yield f"newest: the body of {read.run_id}/{read.step}:{read.epoch} read something else"
    for sample in samples:
        yield from sampled(sample, evidence.stories[sample.run_id])


def _other(handoff: Handoff, step: StepPlan, context: dict[str, values.Value]) -> list[str]:
    inputs = values.unpack_map(handoff.inputs)
    return [name for name in step.reads if inputs.get(name) != context.get(name)]


def _at_their_starts(evidence: Evidence) -> Iterator[str]:
    """What an attempt was given is still the newest when it starts."""
    handed = {(g.handoff.run_id, g.handoff.step, g.handoff.epoch): g for g in evidence.given}
    for run_id, story in evidence.stories.items():
        for (_, each), state in zip(story.transitions, story.states, strict=True):
            if each.cause != StepStarted.__name__ or each.outcome is not Outcome.APPLIED:
                continue
            given = handed.get((run_id, each.step, each.epoch))
            what = f"{run_id}/{each.step}:{each.epoch}"
            if given is None:
                yield f"newest: {what} started without a handoff"
            elif differs := _other(given.handoff, story.steps[each.step], state.context):
                yield f"newest: {what} started on an older {', '.join(differs)}"


def sampled(sample: Sample, story: Story) -> Iterator[str]:
    """What a client was told of a run is its newest state by the events below its position."""
    what = f"newest: {sample.by} of {sample.run_id}"
    state = story.newest(sample.position) if sample.position else story.states[-1]
    if sample.run_version != state.run_version:
        yield f"{what} says version {sample.run_version}, newest is {state.run_version}"
    secrets = {*story.plan.secrets}
    shown = {name: value for name, value in state.context.items() if name not in secrets}
    seen = {name: value for name, value in sample.context.items() if name not in secrets}
    if seen != shown:
        yield f"{what} shows another context at version {sample.run_version}"


def minimal(evidence: Evidence, heartbeats: str, control: str) -> Iterator[str]:
    """A handoff holds the declared reads and nothing else of the context; so do all others."""
    for each in evidence.given:
        yield from _small(each, evidence.stories[each.handoff.run_id])
    for event in evidence.events.values():
        if isinstance(event, StepCompleted) and event.run_id in evidence.stories:
            steps = evidence.stories[event.run_id].steps
            ops = values.unpack(event.ops)
            written = {op[1][0] for op in ops}  # type: ignore[union-attr, index]
            if more := written - fields_of(steps[event.step]):
                yield f"minimal: {event.run_id}/{event.step} returned {more}, undeclared"
    for raw in evidence.messages[heartbeats]:
        beat = decode(raw)
        # Attempts that are held, or in a hello the marks that were found in the group.
        told = len(getattr(beat, "held", ())) + len(getattr(beat, "marks", ()))
        if len(raw) > HEARTBEAT_BYTES_MAX + told * HELD_BYTES_MAX:
            yield f"minimal: a {type(beat).__name__} of {len(raw)} bytes for {told} attempts"
    for raw in evidence.messages[control]:
        answer = decode(raw)
        assert isinstance(answer, Answer)
        if answer.answer is not AnswerType.ENDED and (
            len(raw) > ANSWER_BYTES_MAX or answer.context or CANARY.encode() in raw
        ):
            yield f"minimal: an answer {answer.answer} of {len(raw)} bytes"


def _small(each: Given, story: Story) -> Iterator[str]:
    handoff = each.handoff
    what = f"minimal: handoff {handoff.run_id}/{handoff.step}:{handoff.epoch}"
    inputs = values.unpack_map(handoff.inputs)
    declared = set(story.steps[handoff.step].reads)
    if inputs.keys() != declared:
        yield f"{what} holds {sorted(inputs)}, declared are {sorted(declared)}"
    if CANARY.encode() in each.raw:
        yield f"{what} holds what no step declares"
    words = (handoff.goal, handoff.run_id * 2, handoff.flow, handoff.step * 2, *handoff.writes)
    told = sum(len(word.encode()) + 2 for word in words)
    journal = sum(len(e.key) + len(e.effect) + len(e.result) + 12 for e in handoff.effects)
    journal += sum(
        len(e.key) + len(e.effect) + len(e.result) + len(e.undo_input) + 14 for e in handoff.undo
    )
    parts = len(handoff.inputs) + len(handoff.save or b"") + len(handoff.wrote) + journal
    if each.size_bytes > parts + told + FRAME_BYTES_MAX:
        yield f"{what} has {each.size_bytes} bytes, its parts have {parts + told}"


def sufficient(evidence: Evidence, folds: Iterable[Owned]) -> Iterator[str]:
    """Each return alone said how the run goes on: routed in the very transition that took it."""
    handed = {(g.handoff.run_id, g.handoff.step, g.handoff.epoch) for g in evidence.given}
    for run_id, story in evidence.stories.items():
        states = dict.fromkeys(story.steps, StepState.PENDING)
        for _, each in story.transitions:
            before = dict(states)
            states.update({change.step: change.after for change in each.changes})
            yield from (f"sufficient: {run_id}: {why}" for why in _routed(story, each, before))
            for change in each.changes:
                given = run_id, change.step, change.epoch
                if change.after is StepState.DISPATCHED and given not in handed:
                    yield f"sufficient: {'/'.join(map(str, given))} was given to nobody"
            over = each.run_state_after in FINAL_RUNS
            if not over and not _ACTIVE & {str(state) for state in states.values()}:
                yield f"sufficient: {run_id} waits for nothing after {each.cause}"
    for fold in folds:
        yield from (f"sufficient: {each} waits for nobody" for each in fold.unowned)


def _routed(story: Story, each: Transition, before: dict[str, StepState]) -> Iterator[str]:
    if each.outcome is not Outcome.APPLIED:
        return
    if each.cause not in {StepCompleted.__name__, StepFailed.__name__}:
        return
    moved = {change.step: change.after for change in each.changes}
    if moved.get(each.step) not in _ROUTED:
        yield f"{each.cause} of {each.step} left it {moved.get(each.step)}"
    running = str(each.run_state_after) in {"running", "waiting"}
    if each.cause == StepCompleted.__name__ and moved.get(each.step) == "completed" and running:
        done = {name for name, state in before.items() if state == "completed"} | {each.step}
        for step in story.plan.steps:
            due = step.role is StepRole.FORWARD and each.step in step.needs
            due = due and set(step.needs) <= done and before[step.name] == "pending"
            if due and moved.get(step.name) in {None, StepState.PENDING}:
                yield f"{step.name} had all that it needs after {each.step}, and did not go"
