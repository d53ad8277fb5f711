"""What is checked while the world runs, and once more when it has come to rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.clock import Process
from tests.simulation.log import Changelog, Entry, LogPartition
from tests.simulation.promises import BrokenPromiseError
from tests.simulation.reference import Reference, encode
from tests.simulation.story import Story

from dalsegno.schemas.outputs import RunState
from dalsegno.schemas.plan import StepRole
from dalsegno.streams.core.actions import Output
from dalsegno.streams.core.effects import effect_key
from dalsegno.streams.core.sequence import Sequence
from dalsegno.streams.engine.verify import differences

if TYPE_CHECKING:
    from tests.simulation.worker import Attempt, Worker
    from tests.simulation.world import World

# After the faults have stopped no engine has a reason to fence another for longer than this.
CALM_FENCES_MS = 20_000
# How far an owner may be behind the end of its log at rest.
LAG_MAX_MS = 1_000
# Every so many seeds the log is folded once more from nothing, without captures in between.
FRESH_EVERY = 3


class Checker:
    """Listens to every log, checkpoint and body of the world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.references = [
            world.reference_class(world, number) for number in range(world.setup.partitions)
        ]
        self.seen: dict[tuple[str, int], int] = {}
        self.missing: list[dict[tuple[str, int], int]] = [{} for _ in self.references]
        self.shadows = [world.new_partition(ref.number).parts() for ref in self.references]
        self.shadow_at = [0 for _ in self.references]
        self.bodies: dict[tuple[str, str, int], str] = {}

    def output_bytes(self, output: Output) -> bytes:
        return encode(output.action)

    def expect(self, channel: str, number: int, sequence: Sequence) -> None:
        """The reference fold has this output; some engine must bring it out."""
        self.missing[number][channel, sequence.count] = sequence.offset

    def on_output(self, log: LogPartition, entry: Entry) -> None:
        number, channel, sequence = log.number, log.topic, entry.sequence
        expected = self.references[number].outputs.get(channel, [])
        place = (channel, number)
        seen = self.seen.get(place, 0)
        if not 1 <= sequence.count <= len(expected):
            raise BrokenPromiseError(
                f"P2: {channel}/{number}: output {tuple(sequence)} is in no fold of the log"
            )
        if expected[sequence.count - 1] != (sequence, entry.value):
            raise BrokenPromiseError(
                f"P3: {channel}/{number}: {tuple(sequence)} from {entry.writer} differs"
            )
        if sequence.count > seen + 1:
            raise BrokenPromiseError(
                f"P3: {channel}/{number}: gap, {sequence.count} came after {seen}"
            )
        if sequence.count == seen + 1:
            self.seen[place] = sequence.count
            del self.missing[number][channel, sequence.count]

    def on_commit(
        self, changelog: Changelog, position: int, parts: list[tuple[bytes, bytes | None]]
    ) -> None:
        number = changelog.number
        shadow, at = self.shadows[number], self.shadow_at[number]
        if position < at:
            raise BrokenPromiseError(
                f"P3: partition {number}: checkpoint went back from {at} to {position}"
            )
        for delta in self.references[number].deltas[at:position]:
            for key, value in delta:
                if value is None:
                    shadow.pop(key, None)
                else:
                    shadow[key] = value
        self.shadow_at[number] = position
        if wrong := self.unlike(shadow, changelog.parts):
            raise BrokenPromiseError(
                f"P2: partition {number} at {position}: checkpoint differs in {wrong[:5]}"
            )
        ref = self.references[number].partition
        if position == ref.position and self.unlike(ref.parts(), changelog.parts):
            raise BrokenPromiseError(f"P2: partition {number} at {position}: captures lack parts")
        late = next(iter(self.missing[number].values()), position)
        if late < position:
            raise BrokenPromiseError(
                f"P3: partition {number}: checkpoint {position} before output of {late} is out"
            )

    def unlike(self, folded: dict[bytes, bytes], other: dict[bytes, bytes]) -> list[str]:
        """How a state differs from the fold: by its bytes, unless code of two releases is about."""
        if folded == other:
            return []
        found = list(differences(folded, other))
        if self.world.upgrade is None and not found:
            return ["the bytes are others"]
        return found

    def on_fence(self, number: int, process: Process) -> None:
        calm_since = self.world.calm_since_ms
        if calm_since is not None and self.world.scheduler.now_ms > calm_since + CALM_FENCES_MS:
            raise BrokenPromiseError(
                f"P3: {process.name} fences partition {number} although nothing failed"
            )

    def on_body(self, attempt: Attempt, ack: Any, worker: Worker) -> None:
        handoff = attempt.handoff
        key = attempt.key
        if key in self.bodies:
            raise BrokenPromiseError(
                f"P4: {key} was started by {self.bodies[key]} and {worker.name}"
            )
        self.bodies[key] = worker.name
        if not isinstance(ack, Entry):
            raise BrokenPromiseError(f"P4: {key} was started, and perhaps nobody knows of it")
        if ack.at_ms >= handoff.start_by_ms:
            raise BrokenPromiseError(f"P4: {key} started {ack.at_ms - handoff.start_by_ms} ms late")
        if attempt.released:
            raise BrokenPromiseError(f"P4: {key} was given back by {worker.name} and started there")
        if len(worker.held) > worker.slots:
            raise BrokenPromiseError(f"P9: {worker.name} holds {len(worker.held)} handoffs")
        number = self.world.partition_of(handoff.run_id)
        mark = self.world.queue_group.committed[number].sequence
        if mark is None or mark < attempt.sequence:
            raise BrokenPromiseError(f"P4: {key} was started before its handoff was committed")
        self.world.trace("body", worker.name, *key)

    def stories(self) -> list[tuple[Reference, Story]]:
        return [(ref, story) for ref in self.references for story in ref.stories.values()]

    def unsettled(self) -> list[str]:
        """Runs that have neither ended nor an owner, a person or a reason to wait."""
        open_runs = []
        for ref in self.references:
            for spec in self.world.specs.values():
                if self.world.partition_of(spec.run_id) != ref.number:
                    continue
                story = ref.stories.get(spec.run_id)
                if not spec.acknowledged or story is None or not story.settled():
                    open_runs.append(spec.run_id)
        return open_runs

    def at_rest(self) -> None:
        """Everything that must hold when faults have stopped and the world has settled."""
        left = self.unsettled()
        if left:
            states = [(run, self.state_of(run)) for run in left]
            raise BrokenPromiseError(f"P6: runs have not ended and wait for nobody: {states}")
        for number, outputs in enumerate(self.missing):
            entries, latest_ms = self.world.events[number].entries, self._just_now_ms()
            late = [name for name, at in outputs.items() if entries[at].at_ms < latest_ms]
            if late:
                raise BrokenPromiseError(
                    f"P2: partition {number}: outputs never came out: {late[:5]}"
                )
        for ref, story in self.stories():
            self.check_end(ref, story)
        self.check_effects()
        self.check_engines()

    def _just_now_ms(self) -> int:
        """Outputs of events that were appended since then may be on their way."""
        return self.world.scheduler.now_ms - LAG_MAX_MS

    def state_of(self, run_id: str) -> str:
        story = self.references[self.world.partition_of(run_id)].stories.get(run_id)
        return "unknown" if story is None else str(story.state)

    def check_end(self, ref: Reference, story: Story) -> None:
        spec = story.spec
        if spec is None:
            return
        if not spec.valid and story.state is not None:
            raise BrokenPromiseError(
                f"P7: run {story.run_id} should have been refused and is {story.state}"
            )
        if story.state is RunState.SUCCEEDED:
            forward = StepRole.FORWARD
            steps = [step.name for step in spec.started.plan.steps if step.role is forward]
            undone = [step for step in steps if not story.is_done(step)]
            if undone:
                raise BrokenPromiseError(f"P6: run {story.run_id} succeeded without {undone}")
            story.check_context()

    def check_effects(self) -> None:
        """P4: one key per effect; nothing that was confirmed before a handoff is done under it."""
        for call in self.world.receiver.calls:
            name = f"{call.run_id}/{call.step}/{call.effect}/{call.occurrence}"
            if call.key != effect_key(
                recovery(call.run_id, call.step), call.effect, call.occurrence
            ):
                raise BrokenPromiseError(f"P4: effect {name} was done under another key")
            ref = self.references[self.world.partition_of(call.run_id)]
            story = ref.stories[call.run_id]
            at = story.confirmed.get((call.step, call.effect, call.occurrence))
            if story.is_known and at is not None and at < call.source_offset:
                raise BrokenPromiseError(
                    f"P4: effect {name} was confirmed at {at} and is done again"
                )

    def check_engines(self) -> None:
        """P2: the live state of every owner, and a fold from nothing, equal the reference."""
        for ref in self.references:
            digest = ref.partition.digest()
            for engine in self.world.engines:
                session = engine.sessions.get(ref.number)
                if session is None or not session.alive or not engine.process.alive:
                    continue
                behind = self.world.events[ref.number].entries[session.partition.position :]
                if behind and behind[0].at_ms > ref.partition.log_ms - LAG_MAX_MS:
                    # A tick of this very moment: a run put aside keeps its attempts in flight.
                    continue
                if behind:
                    raise BrokenPromiseError(
                        f"P6: {engine.process.name} stands still on {ref.number}"
                    )
                wrong = session.partition.digest() != digest and self.unlike(
                    ref.partition.parts(), session.partition.parts()
                )
                if wrong:
                    raise BrokenPromiseError(
                        f"P2: {engine.process.name} has another state of {ref.number}"
                    )
            if self.world.seed % FRESH_EVERY:
                continue
            fresh = self.world.new_partition(ref.number)
            for entry in self.world.events[ref.number].entries:
                fresh.apply(self.world.record(ref.number, entry))
            if fresh.digest() != digest or fresh.parts() != ref.partition.parts():
                raise BrokenPromiseError(
                    f"P2: a second fold of partition {ref.number} differs from the first"
                )


def recovery(run_id: str, step: str) -> str:
    return f"{len(run_id)}:{run_id}/{step}"
