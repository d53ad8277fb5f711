"""The simulated broker: logs with append times, producers, and a changelog under a fence.

What is kept from Kafka: one order per partition; append time from the leader's own clock, which may
go back when the leader changes; an idempotent producer never doubles or reorders within one
partition, a plain one may; an acknowledgement may be lost although the record is there, or come
late; a transaction of an older producer epoch is refused whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec
from tests.simulation.clock import Future, Process, Scheduler
from tests.simulation.network import Network


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One record: `event` is the record's object, `sequence` the header of an output."""

    offset: int
    at_ms: int
    key: str
    event: Any
    value: bytes = b""
    sequence: Any = None
    writer: str = ""


class Failed(msgspec.Struct, frozen=True, gc=False):
    """A send whose outcome its producer does not know."""

    why: str


class LogPartition:
    """One partition of one topic."""

    def __init__(self, scheduler: Scheduler, topic: str, number: int, skew_ms: int) -> None:
        self.scheduler = scheduler
        self.topic = topic
        self.number = number
        self.skew_ms = skew_ms
        self.closed_until_ms = 0
        self.entries: list[Entry] = []
        self.listeners: list[Callable[[LogPartition, Entry], None]] = []
        self._waiting: list[Future] = []

    @property
    def end(self) -> int:
        return len(self.entries)

    def append(
        self, key: str, event: Any, *, value: bytes = b"", sequence: Any = None, writer: str = ""
    ) -> Entry:
        at_ms = self.scheduler.now_ms + self.skew_ms
        entry = Entry(self.end, at_ms, key, event, value, sequence, writer)
        self.entries.append(entry)
        for listener in self.listeners:
            listener(self, entry)
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            future.resolve()
        return entry

    def beyond(self, position: int) -> Future:
        """Resolves when there is a record at `position` or above."""
        future = Future()
        if self.end > position:
            future.resolve()
        else:
            self._waiting.append(future)
        return future

    def change_leader(self, skew_ms: int, away_ms: int) -> None:
        """Another broker leads from now on, with its own clock; appends wait until it does."""
        self.skew_ms = skew_ms
        self.closed_until_ms = self.scheduler.now_ms + away_ms


class Producer:
    """Sends records; what has left a process arrives even if the process has died since.

    `idempotent` producers keep the order within a partition and never double. Plain ones retry
    blindly: a record may arrive twice and late.
    """

    def __init__(self, network: Network, process: Process, *, idempotent: bool = True) -> None:
        self.network = network
        self.process = process
        self.idempotent = idempotent
        self._lines: dict[tuple[str, int], deque[Callable[[], None]]] = {}
        self._free_at: dict[tuple[str, int], int] = {}
        self._broken: dict[tuple[str, int], bool] = {}

    def send(
        self, log: LogPartition, key: str, event: Any, *, value: bytes = b"", sequence: Any = None
    ) -> Future:
        """A future with the `Entry`, or with `Failed` when the outcome is unknown."""
        ack = Future()
        scheduler = self.network.scheduler
        place = (log.topic, log.number)
        if self._broken.get(place):
            # What queued behind a failed record is failed with it, never sent ahead of it.
            scheduler.after(
                1, lambda: ack.resolve(Failed("an earlier record of the partition failed"))
            )
            return ack
        fate = self.network.fate()
        if fate.lost or fate.ack_lost:
            self._broken[place] = self.idempotent
        if fate.lost:
            scheduler.after(fate.delay_ms, lambda: ack.resolve(Failed("delivery timed out")))
            return ack

        def deliver() -> None:
            entry = log.append(key, event, value=value, sequence=sequence, writer=self.process.name)
            answer = Failed("acknowledgement lost") if fate.ack_lost else entry
            scheduler.after(self.network.delay(), lambda: ack.resolve(answer))

        arrive = scheduler.now_ms + fate.delay_ms
        if self.idempotent:
            self._deliver_in_line(log, place, arrive, deliver)
        else:
            _deliver_when_open(scheduler, log, arrive, deliver)
            if fate.doubled:
                _deliver_when_open(scheduler, log, arrive + self.network.delay() * 3, deliver)
        return ack

    def renew(self) -> None:
        """A new producer takes the place of a spoilt one."""
        self._broken.clear()

    def _deliver_in_line(
        self, log: LogPartition, place: tuple[str, int], arrive: int, deliver: Callable[[], None]
    ) -> None:
        line = self._lines.setdefault(place, deque())
        line.append(deliver)
        arrive = self._free_at[place] = max(arrive, self._free_at.get(place, 0))
        # Whichever arrival comes up first delivers the head of the line, so order holds.
        _deliver_when_open(self.network.scheduler, log, arrive, lambda: line.popleft()())


def _deliver_when_open(
    scheduler: Scheduler, log: LogPartition, arrive: int, deliver: Callable[[], None]
) -> None:
    def attempt() -> None:
        if scheduler.now_ms < log.closed_until_ms:
            scheduler.at(log.closed_until_ms, attempt)
        else:
            deliver()

    scheduler.at(arrive, attempt)


class Changelog:
    """The compacted changelog of one partition, written in transactions under one fence."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.epoch = 0
        self.owner = ""
        self.parts: dict[bytes, bytes] = {}
        self.history: list[tuple[bytes, bytes | None]] = []
        self.commits = 0
        self.listeners: list[
            Callable[[Changelog, int, list[tuple[bytes, bytes | None]]], None]
        ] = []

    def fence(self, owner: str) -> int:
        """A new producer epoch; every earlier one can no longer commit."""
        self.epoch += 1
        self.owner = owner
        return self.epoch

    def commit(self, epoch: int, position: int, parts: list[tuple[bytes, bytes | None]]) -> bool:
        """One transaction, whole or not at all. False: fenced."""
        if epoch != self.epoch:
            return False
        for key, value in parts:
            if value is None:
                self.parts.pop(key, None)
            else:
                self.parts[key] = value
        self.history += parts
        self.commits += 1
        for listener in self.listeners:
            listener(self, position, parts)
        return True
