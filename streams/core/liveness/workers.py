"""Workers as the heartbeats show them: newest incarnation, host, and the error of their clocks."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

CLOCK_FROZEN_MS = 10_000
"""A worker's clock that has not moved for this long, while its records did, stands still."""


class Process:
    """One incarnation of a worker; shared by all the attempts that it runs."""

    __slots__ = ("incarnation", "name")

    def __init__(self, name: str, incarnation: int) -> None:
        self.name = name
        self.incarnation = incarnation


class WorkerClock(msgspec.Struct, frozen=True, gc=False):
    """How a producer's clock compares with the broker's. For people only: no verdict uses it."""

    worker: str
    skew_ms: int
    frozen: bool


class _Worker:
    """`incarnation` is -1 until a hello was read; `moved_at_ms`: when `sent_at_ms` last changed."""

    __slots__ = ("host", "incarnation", "moved_at_ms", "process", "seen_at_ms", "sent_at_ms")

    def __init__(self) -> None:
        self.host = ""
        self.incarnation = -1
        self.process: Process | None = None
        self.sent_at_ms = 0
        self.moved_at_ms = 0
        self.seen_at_ms = 0


class Workers:
    """At most so many workers, the one not heard of for longest forgotten first."""

    __slots__ = ("_max", "_workers")

    def __init__(self, workers_max: int) -> None:
        self._max = workers_max
        self._workers: OrderedDict[str, _Worker] = OrderedDict()

    def __len__(self) -> int:
        return len(self._workers)

    def process(self, name: str, incarnation: int) -> Process:
        """The shared `Process` of that worker's incarnation."""
        worker = self._touch(name)
        process = worker.process
        if process is None or process.incarnation != incarnation:
            process = worker.process = Process(name, incarnation)
        return process

    def incarnation(self, name: str) -> int:
        """The newest incarnation that said hello, or -1."""
        worker = self._workers.get(name)
        return -1 if worker is None else worker.incarnation

    def hello(self, name: str, incarnation: int, host: str) -> bool:
        """Take a newer incarnation; return whether it came from another host than the last one.

        The caller has checked that it is newer. While no hello of the worker is known the host is
        taken to be the same: names are made from the host unless they are chosen.
        """
        worker = self._touch(name)
        moved = bool(worker.host) and worker.host != host
        worker.incarnation, worker.host = incarnation, host
        return moved

    def seen(self, name: str, sent_at_ms: int, at_ms: int) -> None:
        """Note a record appended at `at_ms` that its worker's clock dates `sent_at_ms` (0: not)."""
        worker = self._touch(name)
        if not sent_at_ms:
            return
        worker.seen_at_ms = at_ms
        if sent_at_ms != worker.sent_at_ms:
            worker.sent_at_ms, worker.moved_at_ms = sent_at_ms, at_ms

    def clocks(self) -> list[WorkerClock]:
        """Every worker whose records are dated."""
        return [
            WorkerClock(
                name,
                worker.sent_at_ms - worker.seen_at_ms,
                worker.seen_at_ms - worker.moved_at_ms > CLOCK_FROZEN_MS,
            )
            for name, worker in self._workers.items()
            if worker.sent_at_ms
        ]

    def _touch(self, name: str) -> _Worker:
        worker = self._workers.get(name)
        if worker is None:
            worker = self._workers[name] = _Worker()
            if len(self._workers) > self._max:
                self._workers.popitem(last=False)
        else:
            self._workers.move_to_end(name)
        return worker
