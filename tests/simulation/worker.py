"""A simulated worker: the start rules of the queue, heartbeats, lease, answers and restarts.

The order is the contract: poll no more than there are free slots; commit offset and mark; drop
repeats; `StepStarted` acknowledged before `start_by`; only then the body.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from tests.simulation.clock import Future, Process, Step, Task, first_of
from tests.simulation.groups import Mark
from tests.simulation.log import Entry, LogPartition, Producer

from dalsegno.schemas.events import StepReleased, StepStarted
from dalsegno.schemas.liveness import Heartbeat, Held, Hello
from dalsegno.schemas.liveness import Mark as HelloMark
from dalsegno.schemas.outputs import Answer, AnswerType, Handoff
from dalsegno.streams.core.sequence import Sequence

if TYPE_CHECKING:
    from tests.simulation.world import World

HEARTBEAT_MS = 1_000
LEASE_MS = 4_000


class Attempt:
    """One handoff in the hands of a worker."""

    def __init__(self, handoff: Handoff, sequence: Sequence) -> None:
        self.handoff = handoff
        self.sequence = sequence
        self.started = False
        self.released = False
        self.over = False
        self.progress = 0
        self.task: Task | None = None
        self.answers: list[Answer] = []

    @property
    def key(self) -> tuple[str, str, int]:
        return (self.handoff.run_id, self.handoff.step, self.handoff.epoch)


class Worker:
    """One process of a worker; a restart under the same name is another `Worker`."""

    def __init__(self, world: World, name: str, slots: int) -> None:
        self.world = world
        self.name = name
        self.slots = slots
        self.process = Process(world.scheduler, name)
        self.incarnation = -1
        self.address = f"{name}/{world.next_number()}"
        self.producer = Producer(world.network, self.process)
        self.held: dict[tuple[str, str, int], Attempt] = {}
        self.positions: dict[int, Mark] = {}
        self.generation = -1
        self.slot_freed = Future()
        self.last_beat_ms = world.scheduler.now_ms
        world.addresses[self.address] = self.on_answer
        self.process.spawn(self.live())

    def live(self) -> Step:
        world = self.world
        home = world.heartbeats[0]
        entry = None
        while not isinstance(entry, Entry):
            self.producer.renew()
            entry = yield self.producer.send(home, self.name, self.hello(0, -1, ()))
        self.incarnation = entry.offset
        self.process.spawn(self.beats())
        group = world.queue_group
        while True:
            group.join(self.process)
            yield world.network.delay()
            yield from self.say_hello()
            yield from self.poll_while_member()
            self.abandon("put out of the group")
            yield world.rng.randrange(50, 500)

    def say_hello(self) -> Step:
        """To every partition, with the marks found: what the one before took and never started."""
        found = tuple(
            HelloMark(
                queue="default",
                partition=number,
                offset=mark.sequence.offset,
                index=mark.sequence.index,
                worker=mark.worker,
                incarnation=mark.incarnation,
            )
            for number, mark in self.world.queue_group.committed.items()
            if mark.sequence is not None
        )
        for log in self.world.heartbeats:
            yield self.producer.send(
                log, self.name, self.hello(log.number, self.incarnation, found)
            )

    def hello(self, partition: int, incarnation: int, marks: tuple[HelloMark, ...]) -> Hello:
        return Hello(
            partition=partition, worker=self.name, incarnation=incarnation, host="host", marks=marks
        )

    def poll_while_member(self) -> Step:
        world = self.world
        group = world.queue_group
        while True:
            owned = group.beat(self.process)
            yield world.network.delay()
            if owned is None:
                return
            if self.generation != group.generation:
                # Somebody else may have owned the partitions since: only the group's word counts.
                self.generation = group.generation
                self.positions = {}
            for number in owned:
                self.positions.setdefault(number, group.committed[number])
            free = self.slots - len(self.held)
            taken = self.poll(free)
            if not taken:
                yield from self.idle(free)
                continue
            marks = {number: self.mark_after(number, records) for number, records in taken.items()}
            begun = self.begin_early(taken)
            committed = yield from self.commit(marks)
            if not committed:
                # Nothing of it was started; the positions are read again from the group.
                self.positions = {}
                continue
            if not begun:
                self.begin(taken)
            self.positions.update(marks)

    def idle(self, free: int) -> Step:
        """Until there may be something to poll, or it is time for a sign of life."""
        wake = Future()
        if free > 0:
            for number, mark in self.positions.items():
                self.world.queues[number].beyond(mark.offset).then(wake.resolve)
        else:
            self.slot_freed = wake
        yield first_of(self.world.scheduler, wake, 1_000)

    def poll(self, free: int) -> dict[int, list[Entry]]:
        """At most `free` records over all partitions, dealt in a random order of partitions."""
        taken: dict[int, list[Entry]] = {}
        numbers = list(self.positions)
        self.world.rng.shuffle(numbers)
        for number in numbers:
            offset = self.positions[number].offset
            records = self.world.queues[number].entries[offset : offset + max(0, free)]
            if records:
                taken[number] = records
                free -= len(records)
        return taken

    def mark_after(self, number: int, records: list[Entry]) -> Mark:
        mark = self.positions[number].sequence
        for entry in records:
            mark = self.higher(mark, entry.sequence)
        return Mark(records[-1].offset + 1, mark, self.name, self.incarnation)

    def higher(self, mark: Sequence | None, sequence: Sequence) -> Sequence:
        """The mark is a high-water mark: a repeat that comes late does not lower it."""
        return sequence if mark is None or sequence > mark else mark

    def commit(self, marks: dict[int, Mark]) -> Generator[Any, Any, bool]:
        """Synchronous; a commit of unknown outcome is read back."""
        group = self.world.queue_group
        fate = self.world.network.fate()
        yield fate.delay_ms
        stored = False if fate.lost else group.commit(self.process, self.generation, marks)
        yield self.world.network.delay()
        if not fate.ack_lost:
            return stored
        found = all(group.committed[number] == mark for number, mark in marks.items())
        yield self.world.network.delay()
        return found

    def begin_early(self, taken: dict[int, list[Entry]]) -> bool:
        """Never before the commit."""
        return False

    def begin(self, taken: dict[int, list[Entry]]) -> None:
        for number, records in taken.items():
            mark = self.positions[number].sequence
            for entry in records:
                if self.is_repeat(mark, entry.sequence):
                    continue
                mark = entry.sequence
                attempt = Attempt(entry.event.handoff, entry.sequence)
                if attempt.key not in self.held:
                    self.held[attempt.key] = attempt
                    attempt.task = self.process.spawn(self.attempt(attempt))

    def is_repeat(self, mark: Sequence | None, sequence: Sequence) -> bool:
        return mark is not None and sequence <= mark

    def attempt(self, attempt: Attempt) -> Step:
        world = self.world
        handoff = attempt.handoff
        body = world.body_class(self, attempt)
        if world.rng.random() < world.odds.release:
            # What it was given and will not start; it never starts this epoch.
            attempt.released = True
            yield from self.report(attempt, StepReleased(**body.name(), reason="stopping"))
            self.drop(attempt)
            return
        yield world.rng.randrange(0, 30)
        started = StepStarted(**body.name(), worker=self.name, incarnation=self.incarnation)
        ack = yield self.producer.send(self.events(handoff), handoff.run_id, started)
        if self.acknowledged(ack) and self.in_time(ack, handoff) and not attempt.over:
            attempt.started = True
            world.checker.on_body(attempt, ack, self)
            yield from body.run()
        self.producer.renew()
        self.drop(attempt)

    def acknowledged(self, ack: Any) -> bool:
        """A start of unknown outcome starts nothing: perhaps it is not in the log."""
        return isinstance(ack, Entry)

    def in_time(self, ack: Entry, handoff: Handoff) -> bool:
        return ack.at_ms < handoff.start_by_ms

    def report(self, attempt: Attempt, event: Any) -> Generator[Any, Any, Entry]:
        """Reports are never dropped: sent again under the same content until acknowledged."""
        while True:
            ack = yield self.producer.send(
                self.events(attempt.handoff), attempt.handoff.run_id, event
            )
            if isinstance(ack, Entry):
                return ack
            self.producer.renew()
            yield 50

    def events(self, handoff: Handoff) -> LogPartition:
        return self.world.events[self.world.partition_of(handoff.run_id)]

    def drop(self, attempt: Attempt) -> None:
        attempt.over = True
        if self.held.get(attempt.key) is attempt:
            del self.held[attempt.key]
            self.slot_freed.resolve()

    def abandon(self, why: str) -> None:
        for attempt in list(self.held.values()):
            self.drop(attempt)
            if attempt.task is not None:
                attempt.task.stop()
        self.world.trace("abandon", self.name, self.incarnation, why)

    def beats(self) -> Step:
        """Its own thread; one record per partition for all that is held there."""
        world = self.world
        producer = Producer(world.network, self.process)
        while True:
            now_ms = world.scheduler.now_ms
            if now_ms - self.last_beat_ms > LEASE_MS:
                self.abandon("heartbeats paused beyond the lease")
                self.last_beat_ms = now_ms
            acks = [
                producer.send(log, self.name, self.beat(log.number, held))
                for log in world.heartbeats
                if (held := self.held_of(log.number))
            ]
            sent_ms = world.scheduler.now_ms
            good = True
            for ack in acks:
                got = yield ack
                good = good and isinstance(got, Entry)
            if good:
                self.last_beat_ms = sent_ms
            producer.renew()
            yield HEARTBEAT_MS + world.rng.randrange(-50, 50)

    def held_of(self, number: int) -> tuple[Held, ...]:
        return tuple(
            Held(run_id=run_id, step=step, epoch=epoch, progress=attempt.progress)
            for (run_id, step, epoch), attempt in self.held.items()
            if self.world.partition_of(run_id) == number
        )

    def beat(self, number: int, held: tuple[Held, ...]) -> Heartbeat:
        return Heartbeat(
            partition=number,
            worker=self.name,
            incarnation=self.incarnation,
            held=held,
            sent_at_ms=self.own_clock_ms(),
        )

    def own_clock_ms(self) -> int:
        """The worker's own clock, which may be far off and decides nothing."""
        return self.world.scheduler.now_ms + self.world.clock_skew.get(self.name, 0)

    def lease_holds(self) -> bool:
        return self.world.scheduler.now_ms - self.last_beat_ms <= LEASE_MS

    def on_answer(self, answer: Answer) -> None:
        """From the control topic: a superseded or cancelled attempt is told to stop."""
        if not self.process.alive:
            return
        attempt = self.held.get((answer.run_id, answer.step, answer.epoch))
        if attempt is None:
            return
        attempt.answers.append(answer)
        if (
            answer.answer in {AnswerType.SUPERSEDED, AnswerType.CANCELLED}
            and attempt.task is not None
        ):
            attempt.task.stop()
            self.drop(attempt)
