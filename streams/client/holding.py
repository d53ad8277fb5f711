"""What a worker holds right now, and how many more it may take."""

from __future__ import annotations

import threading

from dalsegno.streams.client.attempt import Attempt, AttemptId


class Holding:
    """Held attempts by id, and the free slots. Safe to use from every thread of the worker."""

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._changed = threading.Condition()
        self._attempts: dict[AttemptId, Attempt] = {}

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

    def add(self, attempt: Attempt) -> None:
        """The attempt uses one reserved slot until `remove`."""
        self._attempts[attempt.id] = attempt

    def remove(self, attempt: Attempt) -> None:
        """The attempt is over: its slot is free. Does nothing the second time."""
        if self._attempts.pop(attempt.id, None) is not None:
            self.give_back(1)

    def get(self, attempt_id: AttemptId) -> Attempt | None:
        return self._attempts.get(attempt_id)

    def all(self) -> list[Attempt]:
        """A snapshot. Copying a dictionary's values is one step of the interpreter, hence no
        lock.
        """
        return list(self._attempts.values())

    def of_run(self, run_id: str) -> list[Attempt]:
        """The held attempts of one run."""
        return [attempt for attempt in self.all() if attempt.handoff.run_id == run_id]
