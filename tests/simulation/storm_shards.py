"""Simulated time, and one events partition of a world of storms: its log, owner and accounts."""

from __future__ import annotations

import random
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Protocol

from tests.simulation.permits import PermitBook, check_views

from dalsegno.schemas.control import ClockTick
from dalsegno.streams.core.actions import Dispatch, Output
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.record import Record

T0 = 1_800_000_000_000


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
        self.book = PermitBook()
        self.ticks = 0

    def append(self, event: object) -> None:
        """A record comes into the log, and the owner reads it."""
        self.log.append(
            Record(len(self.log), T0 + self.world.time.now_ms, b"", b"", event)  # type: ignore[arg-type]
        )
        self.read()

    def read(self) -> None:
        """The owner applies what it has not applied yet; what came of it is judged once."""
        while self.fold.position < len(self.log):
            record = self.log[self.fold.position]
            fresh = record.offset >= self.world.judged[self.number]
            if fresh:
                self.world.judged[self.number] = record.offset + 1
                self.book.heard(record.event, record.at_ms)
            outputs = self.fold.apply(record)
            if fresh:
                self._judge(record, outputs)
            self.world.outputs(self, outputs)

    def _judge(self, record: Record, outputs: list[Output]) -> None:
        for output in outputs:
            if isinstance(output.action, Dispatch):
                handoff = output.action.handoff
                names = self.world.depends_on[handoff.run_id, handoff.step]
                self.book.handed_out(handoff, names)
        check_views(self.fold, record.at_ms)
        self.book.applied(record.event)

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
