"""The reference fold of one partition: the log folded once, checked after every record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from tests.simulation.log import Entry
from tests.simulation.poison import POISON
from tests.simulation.promises import BrokenPromiseError, FoldRaisedError
from tests.simulation.story import FINAL, Story

from dalsegno.schemas.control import ClockTick, StallSuspected, Verdict
from dalsegno.schemas.events import AttemptEvent, RunEvent
from dalsegno.schemas.outputs import Outcome, RunState
from dalsegno.streams.core.actions import Action, Audit, Dispatch, Escalate, Output, PutAside, Reply
from dalsegno.streams.core.attempt import Attempt
from dalsegno.streams.core.sequence import Sequence

if TYPE_CHECKING:
    from tests.simulation.world import World

LIVE_CAP_MS = 3_000
_encode = msgspec.msgpack.encode


class Reference:
    """What the partition's log means: its outputs, and its parts after each record."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.partition = world.new_partition(number)
        self.log_ms = 0
        self.counts: dict[str, int] = {}
        self.outputs: dict[str, list[tuple[Sequence, bytes]]] = {}
        self.deltas: list[list[tuple[bytes, bytes | None]]] = []
        self.stories: dict[str, Story] = {}
        self.in_flight: dict[tuple[str, str], Attempt] = {}
        self.verdict_age_ms = world.policy.verdict_age_ms

    def story(self, run_id: str) -> Story:
        story = self.stories.get(run_id)
        if story is None:
            spec = self.world.specs.get(run_id)
            make = self.world.story_class
            story = self.stories[run_id] = make(run_id, spec, self.core_says_in_flight)
        return story

    def core_says_in_flight(self, run_id: str, step: str, epoch: int) -> bool:
        attempt = self.in_flight.get((run_id, step))
        return attempt is not None and attempt.epoch == epoch and attempt.running

    def on_append(self, entry: Entry) -> None:
        partition = self.partition
        event = entry.event
        if isinstance(event, StallSuspected) and self.world.setup.peaceful:
            self.check_peace(event)
        live_before = partition.live_ms
        self.log_ms = max(self.log_ms, entry.at_ms)
        if isinstance(event, RunEvent):
            self.story(event.run_id).on_early(event, self.log_ms)
        if isinstance(event, AttemptEvent):
            self.story(event.run_id).on_report(event, entry.offset)
        outputs = partition.apply(self.world.record(self.number, entry))
        self.deltas.append(partition.capture())
        for place, attempt in partition.drain_in_flight():
            if attempt is None:
                self.in_flight.pop(place, None)
            else:
                self.in_flight[place] = attempt
        self.check_count(entry)
        self.check_time(event, live_before)
        for index, output in enumerate(outputs):
            self.check_sequence(entry, index, output)
        self.check_outputs(entry, outputs)
        for action in by_unit([output.action for output in outputs]):
            self.check_action(entry, action)
        if isinstance(event, ClockTick | RunEvent):
            for story in self.stories.values():
                story.check_clocks(self.log_ms, partition.live_ms)

    def check_outputs(self, entry: Entry, outputs: list[Output]) -> None:
        """All that came of one record; more is known of it in other worlds."""

    def check_count(self, entry: Entry) -> None:
        partition = self.partition
        counted = sum(partition.counts.values()) + partition.waiting
        if counted != entry.offset + 1 or partition.position != entry.offset + 1:
            raise BrokenPromiseError(
                f"P1: partition {self.number}: {entry.offset + 1} records were delivered, "
                f"{counted} have an outcome or wait ({dict(partition.counts)}, {partition.waiting})"
            )

    def check_time(self, event: Any, live_before: int) -> None:
        partition = self.partition
        if partition.log_ms != self.log_ms:
            raise BrokenPromiseError(
                f"P2: log time is {partition.log_ms}, the largest append time {self.log_ms}"
            )
        moved = partition.live_ms - live_before
        most = LIVE_CAP_MS if isinstance(event, ClockTick) else 0
        if not 0 <= moved <= most:
            raise BrokenPromiseError(
                f"P8: live time moved by {moved} ms at a {type(event).__name__}"
            )
        for name, deadline, now in (
            ("log", partition.next_log_deadline_ms, partition.log_ms),
            ("live", partition.next_live_deadline_ms, partition.live_ms),
        ):
            if deadline is not None and deadline <= now:
                raise BrokenPromiseError(
                    f"P6: a deadline of {name} time passed {now - deadline} ms ago, unfired"
                )

    def check_sequence(self, entry: Entry, index: int, output: Output) -> None:
        channel = output.action.channel
        count = self.counts[channel] = self.counts.get(channel, 0) + 1
        if output.sequence != (entry.offset, index, count):
            raise BrokenPromiseError(
                f"P3: partition {self.number}: {channel} has sequence {tuple(output.sequence)}, "
                f"not {(entry.offset, index, count)}"
            )
        value = encode(output.action)
        self.outputs.setdefault(channel, []).append((output.sequence, value))
        self.world.checker.expect(channel, self.number, output.sequence)

    def check_action(self, entry: Entry, action: Action) -> None:
        partition = self.partition
        now = (self.log_ms, partition.live_ms)
        if isinstance(action, Dispatch):
            self.story(action.handoff.run_id).on_dispatch(action.handoff, entry.offset, *now)
        elif isinstance(action, Audit):
            change = action.transition
            story = self.story(change.run_id)
            if change.cause == "StallSuspected" and change.outcome is Outcome.APPLIED:
                self.check_verdict(entry)
            story.on_transition(change, entry, *now)
            if change.cause in {"RunResumed", "InformationSupplied"} and story.state not in FINAL:
                view = partition.run(change.run_id)
                if view is not None:
                    story.check_end_of_time(change.cause, view.expires_ms)
        elif isinstance(action, Escalate):
            self.story(action.escalation.run_id).on_escalation(action.escalation)
        elif isinstance(action, PutAside):
            letter = action.letter
            if letter.reason == "apply_raised" and POISON not in letter.detail:
                raise FoldRaisedError(f"P12: offset {letter.offset} raised: {letter.detail}")
            if letter.reason == "apply_raised":
                self.story(letter.run_id).check_put_aside()
        elif isinstance(action, Reply):
            self.story(action.answer.run_id).on_answer(action.answer)

    def check_peace(self, verdict: StallSuspected) -> None:
        """P8: where nothing fails, nobody is called dead; a step may be busy for ever."""
        put_aside = self.story(verdict.run_id).state is RunState.QUARANTINED
        # A service that goes away in the middle of its own step has failed, in any world.
        gone = verdict.verdict is Verdict.SILENT and (
            (verdict.run_id, verdict.step) in self.world.services.gone
        )
        if not put_aside and not gone and verdict.verdict is not Verdict.STUCK:
            raise BrokenPromiseError(
                f"P8: {verdict.run_id}/{verdict.step} is called {verdict.verdict}, nothing failed"
            )

    def check_verdict(self, entry: Entry) -> None:
        verdict = entry.event
        if not isinstance(verdict, StallSuspected):
            return
        flight = self.story(verdict.run_id).flights.get(verdict.step, {}).get(verdict.epoch)
        if flight is not None and flight.reported_at >= verdict.events_offset:
            raise BrokenPromiseError(
                f"P8: {verdict.verdict} of {verdict.run_id}/{verdict.step} had read up to "
                f"{verdict.events_offset}, the step reported at {flight.reported_at}; applied"
            )
        if (
            verdict.verdict is Verdict.LOST
            and flight is not None
            and flight.started_live_ms is not None
        ):
            raise BrokenPromiseError(
                f"P8: {verdict.run_id}/{verdict.step} started, and is called lost"
            )
        if self.log_ms - verdict.heartbeats_at_ms > self.verdict_age_ms:
            raise BrokenPromiseError(
                f"P8: a verdict of {verdict.run_id} was applied beyond its age"
            )


def by_unit(actions: list[Action]) -> list[Action]:
    """The same actions, each unit's transition ahead of what the unit dispatched."""
    ordered: list[Action] = []
    held: list[Action] = []
    for action in actions:
        if isinstance(action, Audit):
            ordered.append(action)
            ordered.extend(held)
            held.clear()
        elif isinstance(action, Dispatch):
            held.append(action)
        else:
            ordered.append(action)
    return [*ordered, *held]


def encode(action: Action) -> bytes:
    """Bytes by which two writers of the same output are compared."""
    return _encode(action)
