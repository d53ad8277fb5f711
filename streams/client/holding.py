"""What a worker holds right now, and how many more it may take."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

from dalsegno.streams.client.attempt import AttemptId, Beating

A = TypeVar("A", bound=Beating)


class Holding(Generic[A]):
    """Held attempts by id, and the free slots. Safe to use from every thread of its owner."""

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._changed = threading.Condition()
        self._attempts: dict[AttemptId, A] = {}

    @property
    def free(self) -> int:
        return self._free

    def wait_free(self, timeout_s: float) -> bool:
        """Wait until there is a free slot. False if none came in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._free > 0, timeout_s)

    def reserve(self, most: int) -> int:
        """Take up to `most` free slots; as many as there are, perhaps none."""
        with self._changed:
            taken = min(most, self._free)
            self._free -= taken
            return taken

    def give_back(self, slots: int) -> None:
        """Free slots that were reserved and are not used any more."""
        if slots:
            with self._changed:
                self._free += slots
                self._changed.notify_all()

    def add(self, attempt: A) -> None:
        """The attempt uses one reserved slot until `remove`."""
        self._attempts[attempt.id] = attempt

    def remove(self, attempt: A) -> None:
        """The attempt is over: its slot is free. Does nothing the second time."""
        if self._attempts.pop(attempt.id, None) is not None:
            self.give_back(1)

    def get(self, attempt_id: AttemptId) -> A | None:
        return self._attempts.get(attempt_id)

    def all(self) -> list[A]:
        """A snapshot. Copying a dictionary's values is one step of the interpreter, hence no
        lock.
        """
        return list(self._attempts.values())

    def of_run(self, run_id: str) -> list[A]:
        """The held attempts of one run."""
        return [attempt for attempt in self.all() if attempt.id[0] == run_id]
