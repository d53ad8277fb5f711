"""Simulated time, and one events partition of a world of storms: its log, owner and accounts."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Protocol

from dalsegno.schemas.control import BreakerState, ClockTick, FaultPointChanged, QuotaGranted
from dalsegno.streams.core.actions import Dispatch, Output
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.record import Record

T0 = 1_800_000_000_000


class BrokenPromiseError(AssertionError):
    """A promise of the fault points was broken."""


class Schedule:
    """Simulated time: calls when they are due."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._made = 0
        self._last: dict[object, int] = {}

    def after(self, delay_ms: int, call: Callable[[], None], channel: object = None) -> None:
        """Later; calls of one channel keep their order."""
        due_ms = self.now_ms + delay_ms
        if channel is not None:
            due_ms = self._last[channel] = max(due_ms, self._last.get(channel, 0))
        self._made += 1
        heappush(self._queue, (due_ms, self._made, call))

    def run(self, finished: Callable[[], bool]) -> None:
        """Until it is finished, or nothing is left."""
        while self._queue and not finished():
            self.now_ms, _, call = heappop(self._queue)
            call()


class World(Protocol):
    """What a shard needs to know. `judged`: records of each shard that were judged."""

    time: Schedule
    judged: list[int]
    depends_on: dict[tuple[str, str], tuple[str, ...]]

    def outputs(self, shard: Shard, outputs: list[Output]) -> None:
        """Takes what a partition put out."""


class Shard:
    """One events partition: its log, its owner's fold, and what the outputs have said so far."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.log: list[Record] = []
        self.fold = Partition(number)
        self.saved: tuple[int, dict[bytes, bytes]] = (0, {})
        self.held: dict[str, int] = {}
        self.given: Counter[str] = Counter()
        self.leases: dict[str, int] = {}
        self.ticks = 0

    def append(self, event: object) -> None:
        """A record comes into the log, and the owner reads it."""
        self.log.append(
            Record(len(self.log), T0 + self.world.time.now_ms, b"", b"", event)  # type: ignore[arg-type]
        )
        self.read()

    def read(self) -> None:
        """The owner applies what it has not applied yet."""
        while self.fold.position < len(self.log):
            record = self.log[self.fold.position]
            before = self._heard(record)
            outputs = self.fold.apply(record)
            if before:
                self._judge(record, outputs)
                self._opened(record.event)
            self.world.outputs(self, outputs)

    def _heard(self, record: Record) -> bool:
        """Keeps account of what was allowed, once for each record of the log."""
        if record.offset < self.world.judged[self.number]:
            return False
        self.world.judged[self.number] = record.offset + 1
        event = record.event
        if isinstance(event, FaultPointChanged):
            if event.state is BreakerState.CLOSED and not event.window:
                self.held.pop(event.fault_point, None)
        elif isinstance(event, QuotaGranted) and event.fault_point in self.held:
            self.held[event.fault_point] += event.permits
            self.leases[event.fault_point] = record.at_ms + event.lease_ms
        return True

    def _opened(self, event: object) -> None:
        """After it was applied: timers that fire with an opening still go by what was before."""
        if not isinstance(event, FaultPointChanged) or not (
            event.window or event.state != "closed"
        ):
            return
        if event.state is BreakerState.OPEN or event.fault_point not in self.held:
            self.held[event.fault_point] = 0
            self.given[event.fault_point] = 0

    def _judge(self, record: Record, outputs: list[Output]) -> None:
        log_ms = self.fold.log_ms
        for output in outputs:
            if not isinstance(output.action, Dispatch):
                continue
            handoff = output.action.handoff
            for name in self.world.depends_on[handoff.run_id, handoff.step]:
                if name not in self.held:
                    continue
                self.given[name] += 1
                if self.given[name] > self.held[name]:
                    raise BrokenPromiseError(f"{handoff.run_id} went without a permit of {name}")
                if handoff.start_by_ms > self.leases[name]:
                    raise BrokenPromiseError(f"{handoff.run_id} may start after its lease")
        for name, view in self.fold._now.points.views.items():
            waiting = self.fold._now.points.waiting(name)
            if view.hand and view.hand[0][0] <= log_ms and record.at_ms >= log_ms:
                raise BrokenPromiseError(f"a permit of {name} outlived its lease")
            if view.hand and not waiting and not view.shared:
                raise BrokenPromiseError(f"permits of {name} are kept though nothing waits")
            if waiting and not view.due_ms:
                raise BrokenPromiseError(f"{waiting} wait for {name} and nobody is told")

    def crash(self) -> None:
        """The owner dies; the next one restores the last checkpoint and reads on."""
        position, parts = self.saved
        self.fold = (
            Partition.restore(self.number, parts.items()) if parts else Partition(self.number)
        )
        assert self.fold.position == position
        self.read()

    def checkpoint(self) -> None:
        """What a restore would give."""
        self.saved = (self.fold.position, self.fold.parts())

    def tick(self) -> None:
        """The owner looks whether a tick is due."""
        due = self.fold.next_log_deadline_ms
        now = T0 + self.world.time.now_ms
        running = self.fold.needs_tick and self.world.time.now_ms % 1_000 == 0
        report = self.fold.next_report_ms
        if running or (due is not None and due <= now) or (report is not None and report <= now):
            self.ticks += 1
            self.append(ClockTick(partition=self.number, number=self.ticks))
