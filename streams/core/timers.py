"""Which run has the next deadline, by one clock."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace

from dalsegno.streams.core.runstate import NEVER


class Timers:
    """A lazy heap of (deadline, run id).

    A run is queued again only when its deadline comes nearer than what is queued for it; when an
    entry surfaces it is compared with what the run says now. So entries are few, none is missed.
    `due_of` gives the deadline of a run as it is now, NEVER when it has none or is gone. Before
    `soonest_ms` nothing can be due: what is queued is never later than what it stands for.
    """

    __slots__ = ("_due_of", "_heap", "_queued", "soonest_ms")

    def __init__(self, due_of: Callable[[str], int]) -> None:
        self._heap: list[tuple[int, str]] = []
        self._queued: dict[str, int] = {}
        self._due_of = due_of
        self.soonest_ms = NEVER

    def load(self, entries: list[tuple[int, str]]) -> None:
        """Takes the deadlines of a restored partition at once."""
        self._heap = entries
        heapify(self._heap)
        self._queued = {run_id: due for due, run_id in entries}
        self._surface()

    def changed(self, run_id: str, due_ms: int) -> None:
        """A run's deadline is `due_ms` from now on."""
        if due_ms < self._queued.get(run_id, NEVER):
            heappush(self._heap, (due_ms, run_id))
            self._queued[run_id] = due_ms
            self.soonest_ms = min(self.soonest_ms, due_ms)

    def knows(self, run_id: str, due_ms: int) -> bool:
        """Whether the run surfaces no later than at `due_ms`."""
        return self._queued.get(run_id, NEVER) <= due_ms

    def _surface(self) -> None:
        self.soonest_ms = self._heap[0][0] if self._heap else NEVER

    def next(self) -> tuple[int, str] | None:
        """The first deadline and its run; the entry stays until the run's deadline changes."""
        heap = self._heap
        while heap:
            queued, run_id = heap[0]
            if self._queued.get(run_id) != queued:
                heappop(heap)
                continue
            due = self._due_of(run_id)
            if due == queued:
                self.soonest_ms = queued
                return queued, run_id
            if due == NEVER:
                heappop(heap)
                del self._queued[run_id]
            else:
                heapreplace(heap, (due, run_id))
                self._queued[run_id] = due
        self.soonest_ms = NEVER
        return None
