"""Virtual time, the seeded scheduler and processes made of tasks that can be killed or frozen.

A task is a generator. It yields an `int` (sleep so many virtual ms) or a `Future` (wait for its
value). Every yield is a point where its process may die, freeze, or be overtaken: the order of what
is due in the same millisecond is drawn from the world's one random generator.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator
from random import Random
from typing import Any

Step = Generator[Any, Any, Any]


class Future:
    """A value that comes later; the first `resolve` stands, further ones change nothing."""

    __slots__ = ("_waiters", "done", "value")

    def __init__(self) -> None:
        self.done = False
        self.value: Any = None
        self._waiters: list[Callable[[Any], None]] = []

    def resolve(self, value: Any = None) -> None:
        if self.done:
            return
        self.done = True
        self.value = value
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter(value)

    def then(self, waiter: Callable[[Any], None]) -> None:
        if self.done:
            waiter(self.value)
        else:
            self._waiters.append(waiter)


class Scheduler:
    """Runs callbacks in the order of virtual time; ties are broken by the seed."""

    def __init__(self, rng: Random, start_ms: int) -> None:
        self.rng = rng
        self.now_ms = start_ms
        self.steps = 0
        self._heap: list[tuple[int, float, int, Callable[[], None]]] = []
        self._number = 0

    def at(self, when_ms: int, call: Callable[[], None]) -> None:
        self._number += 1
        due = max(when_ms, self.now_ms)
        heapq.heappush(self._heap, (due, self.rng.random(), self._number, call))

    def after(self, delay_ms: int, call: Callable[[], None]) -> None:
        self.at(self.now_ms + delay_ms, call)

    def run(self, until_ms: int, stop: Callable[[], bool] | None = None) -> bool:
        """Run to `until_ms`, or until `stop()` (asked each 64 steps). True if it stopped early."""
        heap = self._heap
        while heap and heap[0][0] <= until_ms:
            when, _, _, call = heapq.heappop(heap)
            self.now_ms = when
            self.steps += 1
            call()
            if stop is not None and self.steps % 64 == 0 and stop():
                return True
        self.now_ms = max(self.now_ms, until_ms)
        return stop is not None and stop()


class Process:
    """A process of the world: tasks that die together and freeze together.

    `crash_in` kills it after so many further task steps: that is how it dies "between two actions".
    """

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self.scheduler = scheduler
        self.name = name
        self.alive = True
        self.frozen = False
        self.crash_in: int | None = None
        self.on_death: Callable[[], None] | None = None
        self._held: list[Callable[[], None]] = []

    def spawn(self, body: Step, *, delay_ms: int = 0) -> Task:
        task = Task(self, body)
        self.scheduler.after(delay_ms, task.wake)
        return task

    def kill(self) -> None:
        if self.alive:
            self.alive = False
            self._held.clear()
            if self.on_death is not None:
                self.on_death()

    def freeze(self) -> None:
        self.frozen = True

    def thaw(self) -> None:
        if self.frozen:
            self.frozen = False
            held, self._held = self._held, []
            for call in held:
                self.scheduler.after(0, call)

    def hold(self, call: Callable[[], None]) -> None:
        """Keeps a call of a frozen process until it thaws."""
        self._held.append(call)

    def strikes(self) -> bool:
        """Counts a step; true when the process dies instead of taking it."""
        if self.crash_in is None:
            return False
        self.crash_in -= 1
        if self.crash_in <= 0:
            self.kill()
        return not self.alive


class Task:
    """One generator of a process. `stop()` ends it at its next step without killing the process."""

    __slots__ = ("_body", "done", "process", "stopped")

    def __init__(self, process: Process, body: Step) -> None:
        self.process = process
        self._body = body
        self.stopped = False
        self.done = Future()

    def stop(self) -> None:
        self.stopped = True
        self.done.resolve(None)

    def wake(self) -> None:
        """After a sleep."""
        self.resume(None)

    def resume(self, value: Any) -> None:
        process = self.process
        if self.stopped or not process.alive:
            return
        if process.frozen:
            process.hold(lambda: self.resume(value))
            return
        if process.strikes():
            return
        try:
            wanted = self._body.send(value)
        except StopIteration as end:
            self.done.resolve(end.value)
            return
        scheduler = process.scheduler
        if type(wanted) is int:
            scheduler.after(wanted, self.wake)
        else:
            wanted.then(lambda got: scheduler.after(0, lambda: self.resume(got)))


def first_of(scheduler: Scheduler, future: Future, timeout_ms: int) -> Future:
    """Resolves with the future's value, or with `TIMED_OUT` after `timeout_ms`."""
    either = Future()
    future.then(either.resolve)
    scheduler.after(timeout_ms, lambda: either.resolve(TIMED_OUT))
    return either


class _TimedOut:
    def __repr__(self) -> str:
        return "TIMED_OUT"


TIMED_OUT = _TimedOut()
