"""The actors of fault points in the world: a faults topic, and one actor beside each partition.

As in the product: whoever owns an events partition runs the actor of the same number; fence,
restore, read, orders, checkpoint once they are out; ticks when something is due; health checks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from tests.simulation.actor_promises import ActorPromises, order_of
from tests.simulation.clock import Future, Step, first_of
from tests.simulation.dependencies import WINDOW_KEPT_MS, Mode, of_point
from tests.simulation.engine import Engine
from tests.simulation.log import Changelog, Entry, LogPartition, Producer
from tests.simulation.promises import BrokenPromiseError

from dalsegno.schemas.control import ClockTick, FaultPointChanged, QuotaGranted
from dalsegno.schemas.faults import FaultPointSet, HealthReported
from dalsegno.streams.core.faultpoint.actors import FaultPoints
from dalsegno.streams.core.faultpoint.declared import dependency_of
from dalsegno.streams.core.faultpoint.point import Phase
from dalsegno.streams.core.record import Record
from dalsegno.streams.core.state_digest import digest_of

if TYPE_CHECKING:
    from tests.simulation.world import World

BATCH_MAX = 16
CHECKPOINT_MS = 250
LOOK_MS = 100
Order = FaultPointChanged | QuotaGranted


def key_of(order: Order) -> tuple[int, str, str, int]:
    """What makes an order one and the same."""
    return (order.partition, type(order).__name__, order.fault_point, order.number)


class ActorReference:
    """What one partition of the faults topic means: its orders, and its state after each record."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.fold = FaultPoints(number, world.setup.partitions)
        self.records: list[Record] = []
        self.digests = [digest_of(self.fold.parts())]
        # By what makes it one: its count among those to its partition, its record, and itself.
        self.orders: dict[tuple[int, str, str, int], tuple[int, int, Order]] = {}
        self.counts: dict[int, int] = {}
        self.out: dict[int, int] = {}
        self.windows: dict[str, deque[tuple[int, int]]] = {}
        self.promises = ActorPromises(self._closes)

    def _closes(self, point: str) -> None:
        of_point(self.world.dependencies, point).check_closing()

    def on_append(self, log: LogPartition, entry: Entry) -> None:
        """A record is in the log."""
        record = Record(entry.offset, entry.at_ms, entry.key.encode(), entry.value, entry.event)
        self.records.append(record)
        by_hand = isinstance(entry.event, FaultPointSet)
        for output in self.promises.apply(self.fold, record, by_hand=by_hand):
            order = order_of(output)
            count = self.counts[order.partition] = self.counts.get(order.partition, 0) + 1
            if key_of(order) in self.orders:
                raise BrokenPromiseError(f"P9: the actor of {order.fault_point} repeats {order}")
            self.orders[key_of(order)] = (count, entry.offset, order)
        self.digests.append(digest_of(self.fold.parts()))
        self._refused(entry.offset)
        now_ms = self.world.scheduler.now_ms
        for name, point in self.fold.points.items():
            seen = self.windows.setdefault(name, deque())
            if point.phase in {Phase.RAMPING, Phase.HALF_OPEN}:
                seen.append((now_ms, max(1, point.size)))
            while seen and seen[0][0] < now_ms - 2 * WINDOW_KEPT_MS:
                seen.popleft()

    def _refused(self, offset: int) -> None:
        new = [each for each in self.fold.refusals if each.offset == offset]
        raised = [each.detail for each in new if each.reason == "apply_raised"]
        if raised:
            raise BrokenPromiseError(f"P12: the actor raised: {raised}")

    def on_order(self, order: Order) -> None:
        """An order is in the events: one that the fold says, and none before it is missing."""
        found = self.orders.get(key_of(order))
        if found is None or found[2] != order:
            raise BrokenPromiseError(f"P2: an order that no fold of the faults says: {order}")
        seen = self.out.get(order.partition, 0)
        if found[0] > seen + 1:
            raise BrokenPromiseError(f"P3: orders to {order.partition}: {found[0]} after {seen}")
        self.out[order.partition] = max(seen, found[0])

    def on_commit(
        self, changelog: Changelog, position: int, parts: list[tuple[bytes, bytes | None]]
    ) -> None:
        """A checkpoint of the actor was written."""
        if digest_of(changelog.parts) != self.digests[position]:
            raise BrokenPromiseError(f"P2: actor {self.number} at {position}: another checkpoint")
        for count, offset, order in self.orders.values():
            if offset < position and count > self.out.get(order.partition, 0):
                raise BrokenPromiseError(
                    f"P3: actor {self.number}: checkpoint {position} before {order} is out"
                )

    def window_of(self, dependency: str, since_ms: int) -> int:
        """The largest window that a point of the dependency has had since then."""
        return max(
            (
                size
                for name, sizes in self.windows.items()
                if dependency_of(name) == dependency
                for at_ms, size in sizes
                if at_ms >= since_ms
            ),
            default=0,
        )

    def at_rest(self) -> None:
        """Every order came out, and nothing is left on its way."""
        for partition, count in self.counts.items():
            if self.out.get(partition, 0) != count:
                raise BrokenPromiseError(f"P2: actor {self.number}: orders to {partition} lost")
        for name, point in self.fold.points.items():
            if point.waiting or point.out or point.held_open:
                raise BrokenPromiseError(
                    f"P6: {name} at rest: {point.phase}, {point.waiting} wait, {point.out} out"
                )


class Actor:
    """One actor in an engine, for as long as its partition is the engine's."""

    def __init__(self, engine: Engine, number: int, task: int) -> None:
        self.engine = engine
        self.world: Any = engine.world
        self.number = number
        self.task = task
        self.log: LogPartition = self.world.fault_logs[number]
        self.changelog: Changelog = self.world.fault_changelogs[number]
        self.alive = False
        self.fold = FaultPoints(number, self.world.setup.partitions)
        self.epoch = 0
        self.kept = 0

    def life(self) -> Step:
        """One ownership after the other, each from the fence on."""
        while self.engine.tasks.get(self.number) == self.task:
            yield from self.open()
            session = self.epoch
            self.engine.process.spawn(self.ticks(session))
            self.engine.process.spawn(self.checks(session))
            yield from self.read()
            self.alive = False
            yield self.world.network.delay()
            if not self.engine.may_own_again(self.number):
                return
            yield self.world.rng.randrange(10, 300)

    def open(self) -> Step:
        """Fence, read the changelog, restore."""
        network = self.world.network
        yield network.delay()
        self.epoch = self.changelog.fence(self.engine.process.name)
        yield network.delay()
        parts = list(self.changelog.parts.items())
        yield network.delay()
        partitions = self.world.setup.partitions
        self.fold = self.restore(parts) if parts else FaultPoints(self.number, partitions)
        self.kept = self.fold.position
        self.alive = True
        self.world.trace("actor", self.engine.process.name, self.number, self.kept)

    def restore(self, parts: list[tuple[bytes, bytes]]) -> FaultPoints:
        return FaultPoints.restore(self.number, self.world.setup.partitions, parts)

    def mine(self) -> bool:
        return self.engine.tasks.get(self.number) == self.task

    def read(self) -> Step:
        """Until an outcome is unknown, the fence says no, or the partition is another's."""
        world, scheduler = self.world, self.world.scheduler
        producer = self.orders_producer()
        last_ms = scheduler.now_ms
        while self.mine():
            position = self.fold.position
            if self.log.end <= position:
                yield first_of(scheduler, self.log.beyond(position), 500)
            yield world.network.delay()
            acks: list[Future] = []
            for record in self.records(position):
                for output in self.fold.apply(record):
                    order = order_of(output)
                    acks.append(producer.send(world.events[order.partition], "", order))
            for ack in acks:
                if not isinstance((yield ack), Entry):
                    return
            if self.fold.position > self.kept and scheduler.now_ms - last_ms >= CHECKPOINT_MS:
                last_ms = scheduler.now_ms
                if not (yield from self.checkpoint()):
                    return

    def orders_producer(self) -> Producer:
        return Producer(self.world.network, self.engine.process)

    def records(self, position: int) -> list[Record]:
        return self.world.actor_references[self.number].records[position : position + BATCH_MAX]

    def checkpoint(self) -> Generator[Any, Any, bool]:
        """All orders of what was applied are acknowledged: what is captured now may be kept."""
        parts, position = self.fold.capture(), self.fold.position
        fate = self.world.network.fate()
        yield fate.delay_ms
        if fate.lost or not self.changelog.commit(self.epoch, position, parts):
            return False
        yield self.world.network.delay()
        self.kept = position
        return not fate.ack_lost

    def ticks(self, session: int) -> Step:
        """A tick when something is due and all before it is read."""
        scheduler = self.world.scheduler
        producer = Producer(self.world.network, self.engine.process)
        number = self.fold.position
        while self.alive and self.epoch == session:
            yield LOOK_MS
            due = self.fold.next_log_deadline_ms
            read = self.fold.position >= self.log.end
            if due is None or not read or due > scheduler.now_ms + self.log.skew_ms:
                continue
            number = max(number + 1, self.fold.position)
            tick = ClockTick(partition=self.number, number=number)
            yield first_of(scheduler, producer.send(self.log, "", tick), 2_000)
            producer.renew()

    def checks(self, session: int) -> Step:
        """Asks dependencies that have a health check, while their breaker is open."""
        world = self.world
        producer = Producer(world.network, self.engine.process)
        while self.alive and self.epoch == session:
            yield 500
            for name, point in list(self.fold.points.items()):
                if not point.checked or point.phase is not Phase.OPEN or point.held_open:
                    continue
                yield world.network.delay()
                well = of_point(world.dependencies, name).mode() is Mode.WELL
                report = HealthReported(
                    fault_point=name, number=point.health_number + 1, healthy=well
                )
                yield first_of(world.scheduler, producer.send(self.log, name, report), 2_000)
                producer.renew()
