"""A simulated engine: fence, restore, replay, loop; outputs at once, fenced checkpoints behind."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from tests.simulation.clock import Future, Process, Step, first_of
from tests.simulation.log import Changelog, Entry, Producer
from tests.simulation.monitor import Watch
from tests.simulation.upgrade import code_for, saved_by

from dalsegno.schemas.control import ClockTick
from dalsegno.storage.warm import Place
from dalsegno.streams.core.actions import Output
from dalsegno.streams.core.controls import RulesUnknown
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.sequence import Sequence
from dalsegno.streams.core.warm import WarmLost

if TYPE_CHECKING:
    from tests.simulation.world import World

BATCH_MAX = 16
CHECKPOINT_MS = 250
TICK_MS = 1_000
LAG_MAX_MS = 1_000
UNACKED_MAX = 200


class Session:
    """One ownership of one partition, from the fence to its loss; nothing outlives a failure."""

    def __init__(self, engine: Engine, number: int, epoch: int, partition: Partition) -> None:
        self.engine = engine
        self.world = engine.world
        self.number = number
        self.epoch = epoch
        self.partition = partition
        self.log = self.world.events[number]
        self.changelog: Changelog = self.world.changelogs[number]
        self.producer = Producer(self.world.network, engine.process)
        self.tails: dict[str, Sequence] = self.world.tails(number)
        self.alive = True
        self.over = Future()
        self.queued: deque[tuple[Output, bytes]] = deque()
        self.enqueued = 0
        self.acked = 0
        self.checkpoint_position = partition.position
        self.wake_pump = Future()
        self.wake_checkpoint = Future()
        self.dirtied = Future()
        self.checkpointing = False

    def end(self, why: str) -> None:
        if self.alive:
            self.alive = False
            self.world.trace("session", self.engine.process.name, self.number, why)
            self.wake_pump.resolve()
            self.wake_checkpoint.resolve()
            self.over.resolve(why)

    def consume(self) -> Step:
        network = self.world.network
        while self.alive:
            position = self.partition.position
            if self.log.end <= position:
                yield self.log.beyond(position)
            yield network.delay()
            if not self.alive:
                return
            batch = self.log.entries[position : position + BATCH_MAX]
            if self.world.disks is not None and not self.world.disks.ahead(self, batch):
                return
            for entry in batch:
                self.adopt(entry)
                if not self.alive:
                    return
                if self.world.rng.random() < 0.1:
                    yield 0
                    if not self.alive:
                        return
            while self.enqueued - self.acked > UNACKED_MAX and self.alive:
                yield 20

    def adopt(self, entry: Entry) -> None:
        """One record: the state and its outputs go together."""
        try:
            outputs = self.partition.apply(self.world.record(self.number, entry))
        except RulesUnknown:
            # The partition stops until code that knows the rules takes it over.
            self.end("rules unknown")
            return
        except WarmLost:
            self.end("store lost")
            return
        for output in outputs:
            if not self.already_out(output):
                self.queued.append((output, self.world.checker.output_bytes(output)))
                self.enqueued += 1
        self.dirtied.resolve()
        if outputs:
            self.wake_pump.resolve()

    def already_out(self, output: Output) -> bool:
        """The tail of an ordered channel is a safe lower bound of what it shows."""
        tail = self.tails.get(output.action.channel)
        return tail is not None and output.sequence <= tail

    def pump(self) -> Step:
        while self.alive:
            if not self.queued:
                self.wake_pump = Future()
                yield self.wake_pump
                continue
            batch = [self.queued.popleft() for _ in range(min(BATCH_MAX, len(self.queued)))]
            acks = [self.send(output, value) for output, value in batch]
            for ack in acks:
                answer = yield ack
                if not isinstance(answer, Entry):
                    # Nothing may follow an output that is perhaps not there.
                    self.end("output of unknown outcome")
                    return
            self.acked += len(batch)
            self.wake_checkpoint.resolve()

    def send(self, output: Output, value: bytes) -> Future:
        log = self.world.output_log(output.action, self.number)
        key = self.world.output_key(output.action)
        return self.producer.send(log, key, output.action, value=value, sequence=output.sequence)

    def checkpoints(self) -> Step:
        rng = self.world.rng
        while self.alive:
            if self.partition.position == self.checkpoint_position:
                self.dirtied = Future()
                yield self.dirtied
            yield rng.randrange(CHECKPOINT_MS // 2, CHECKPOINT_MS * 2)
            if self.alive:
                yield from self.checkpoint()

    def checkpoint(self) -> Generator[Any, Any, bool]:
        """Capture at X; wait until all outputs below X are acknowledged; one fenced transaction."""
        while self.must_wait() and self.alive:
            yield 10
        self.checkpointing = True
        stored = yield from self.write_checkpoint()
        self.checkpointing = False
        return stored

    def must_wait(self) -> bool:
        """One checkpoint at a time: a later one must not overtake."""
        return self.checkpointing

    def write_checkpoint(self) -> Generator[Any, Any, bool]:
        if not self.alive:
            return False
        parts = self.partition.capture()
        if self.world.upgrade is not None:
            parts = saved_by(self.engine.rules_known, parts)
        captured_ms = self.world.scheduler.now_ms
        position = self.partition.position
        needed = self.enqueued
        while not self.outputs_are_out(needed):
            if not self.alive:
                return False
            self.wake_checkpoint = Future()
            yield self.wake_checkpoint
        fate = self.world.network.fate()
        yield fate.delay_ms
        if not self.alive:
            return False
        if fate.lost or not self.changelog.commit(self.epoch, position, parts):
            self.end("checkpoint refused or lost")
            return False
        end = len(self.changelog.history)
        yield self.world.network.delay()
        if fate.ack_lost:
            self.end("checkpoint of unknown outcome")
            return False
        self.checkpoint_position = position
        if self.world.disks is not None:
            self.world.disks.keep(self, parts, Place(end, captured_ms))
        return True

    def outputs_are_out(self, needed: int) -> bool:
        return self.acked >= needed

    def ticks(self) -> Step:
        """A tick each second while a step is in flight, and one when a deadline is due."""
        scheduler = self.world.scheduler
        producer = Producer(self.world.network, self.engine.process)
        number = self.partition.position
        anchor_log, anchor_now = 0, 0
        wait = 0
        while self.alive:
            yield wait
            wait = TICK_MS
            log_now = anchor_log + scheduler.now_ms - anchor_now
            try:
                deadline = self.partition.next_log_deadline_ms
            except WarmLost:
                self.end("store lost")
                return
            due = deadline is not None and deadline <= log_now
            if not self.alive or (anchor_log and self.lags(log_now)):
                continue
            if anchor_log and not self.partition.needs_tick and not due:
                if deadline is not None:
                    wait = max(20, min(TICK_MS, deadline - log_now))
                continue
            number = max(number + 1, self.partition.position)
            tick = ClockTick(partition=self.number, number=number, source=self.engine.process.name)
            sent = scheduler.now_ms
            entry = yield first_of(scheduler, producer.send(self.log, "", tick), 3_000)
            if isinstance(entry, Entry):
                anchor_log, anchor_now = entry.at_ms, scheduler.now_ms
                short = deadline - entry.at_ms if deadline is not None and due else 0
                wait = max(TICK_MS - (scheduler.now_ms - sent), short, 20)
            else:
                producer.renew()

    def lags(self, log_now: int) -> bool:
        position = self.partition.position
        return self.log.end > position and log_now - self.log.entries[position].at_ms >= LAG_MAX_MS


class Engine:
    """One process of an engine; a restart under the same name is another `Engine`."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.process = Process(world.scheduler, name)
        self.rules_known = world.code[name]
        self.sessions: dict[int, Session] = {}
        self.tasks: dict[int, int] = {}
        self.read_to: dict[int, int] = {}
        self._task_number = 0
        self.process.spawn(self.live())

    def live(self) -> Step:
        """Join, beat, and follow the assignment."""
        group = self.world.engine_group
        yield self.world.network.delay()
        group.join(self.process)
        while True:
            owned = group.beat(self.process)
            yield self.world.network.delay()
            if owned is None:
                for session in list(self.sessions.values()):
                    session.end("evicted")
                self.tasks.clear()
                yield self.world.rng.randrange(50, 1_000)
                group.join(self.process)
                continue
            for number in owned:
                if number not in self.tasks:
                    self._task_number += 1
                    self.tasks[number] = self._task_number
                    self.process.spawn(self.own(number, self._task_number))
            for number in [each for each in self.tasks if each not in owned]:
                del self.tasks[number]
                self.process.spawn(self.hand_over(number))
            yield self.world.rng.randrange(400, 1_200)

    def hand_over(self, number: int) -> Step:
        """Revoked: a last checkpoint, which the fence refuses if another owner is there already."""
        session = self.sessions.get(number)
        if session is not None and session.alive:
            yield from session.checkpoint()
            session.end("revoked")

    def own(self, number: int, task: int) -> Step:
        """Sessions of one partition, one after the other, for as long as it is assigned."""
        while self.tasks.get(number) == task:
            session = yield from self.open(number)
            self.sessions[number] = session
            for body in (
                session.consume(),
                session.pump(),
                session.checkpoints(),
                session.ticks(),
                Watch(session).watch(),
            ):
                self.process.spawn(body)
            yield session.over
            # The state is dropped with the session; nothing of it is written.
            yield self.world.network.delay()
            if not self.may_own_again(number):
                self.tasks.pop(number, None)
                return
            yield self.world.rng.randrange(10, 300)

    def may_own_again(self, number: int) -> bool:
        """Still a member, is it still mine? A zombie that fences blindly would hurt the owner."""
        owned = self.world.engine_group.beat(self.process)
        return owned is not None and number in owned

    def open(self, number: int) -> Generator[Any, Any, Session]:
        """Fence, read the changelog, restore."""
        changelog = self.world.changelogs[number]
        yield self.world.network.delay()
        epoch = changelog.fence(self.process.name)
        self.world.checker.on_fence(number, self.process)
        yield self.world.network.delay()
        parts = list(changelog.parts.items())
        self.read_to[number] = len(changelog.history)
        yield self.world.network.delay()
        partition = self.restore(number, parts)
        self.world.trace("restored", self.process.name, number, partition.position)
        return Session(self, number, epoch, partition)

    def restore(self, number: int, parts: list[tuple[bytes, bytes]]) -> Partition:
        if self.world.disks is not None:
            return self.world.disks.open(self, number)
        if not parts:
            return self.world.new_partition(number, self.rules_known)
        return code_for(self.rules_known).restore(number, parts, rules_known=self.rules_known)
