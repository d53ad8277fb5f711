"""Which run has the next deadline, by one clock."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

from dalsegno.streams.core.runstate import NEVER

# Deadlines of runs that are not in memory, kept in memory: the nearest ones.
NEAR_MAX: Final = 10_000
WINDOW: Final = 2_000
_ALL: Final[tuple[int, str]] = (NEVER, "")
_NONE: Final[tuple[int, str]] = (-1, "")
_SLACK: Final = 1_000

Due = tuple[int, str]
More = Callable[[Due | None, int], tuple[list[Due], Due | None]]
"""The deadlines behind one, of runs outside, and the last that was looked at; None: all were."""


class Timers:
    """A lazy heap of (deadline, run id).

    A run is queued again only when its deadline comes nearer than what is queued for it; when an
    entry surfaces it is compared with what the run says now. So entries are few, none is missed.
    `due_of` gives the deadline of a run as it is now, NEVER when it has none or is gone. Before
    `soonest_ms` nothing can be due: what is queued is never later than what it stands for.

    Of runs that are not in memory only the deadlines up to `frontier` are queued, and `more` is
    asked for the next ones before anything behind it can be the first.
    """

    __slots__ = ("_due_of", "_frontier", "_heap", "_more", "_near", "_queued", "soonest_ms")

    def __init__(self, due_of: Callable[[str], int], more: More | None = None) -> None:
        self._heap: list[Due] = []
        self._queued: dict[str, int] = {}
        self._due_of = due_of
        self._more = more
        self._near: dict[str, int] = {}
        self._frontier: Due = _ALL
        self.soonest_ms = NEVER

    def load(self, entries: list[Due]) -> None:
        """Takes the deadlines of a restored partition at once."""
        self._heap = entries
        heapify(self._heap)
        self._queued = {run_id: due for due, run_id in entries}
        self._surface()

    def all_outside(self) -> None:
        """The runs are not in memory, and nothing is known of their deadlines yet."""
        self._frontier = _NONE
        self._surface()

    def changed(self, run_id: str, due_ms: int) -> None:
        """A run's deadline is `due_ms` from now on."""
        if due_ms < self._queued.get(run_id, NEVER):
            heappush(self._heap, (due_ms, run_id))
            self._queued[run_id] = due_ms
            self.soonest_ms = min(self.soonest_ms, due_ms)

    def left(self, run_id: str, due_ms: int) -> None:
        """The run has left memory; `more` knows its deadline."""
        if due_ms != NEVER and (due_ms, run_id) <= self._frontier:
            self._near[run_id] = due_ms
            self.changed(run_id, due_ms)
            if len(self._near) > NEAR_MAX:
                self._narrow()
        else:
            self._queued.pop(run_id, None)
        if len(self._heap) > 2 * len(self._queued) + _SLACK:
            self._heap = [(due, name) for name, due in self._queued.items()]
            heapify(self._heap)

    def came(self, run_id: str, due_ms: int) -> None:
        """The run is in memory again."""
        self._near.pop(run_id, None)
        self.changed(run_id, due_ms)

    def knows(self, run_id: str, due_ms: int) -> bool:
        """Whether the run surfaces no later than at `due_ms`."""
        return self._queued.get(run_id, NEVER) <= due_ms

    def before(self, until_ms: int, limit: int) -> list[str]:
        """Runs that are queued up to a time, some `limit` of them, in no order."""
        while self._frontier[0] <= until_ms and len(self._near) < limit:
            self._widen()
        heap, places = self._heap, [0]
        found: list[str] = []
        while places and len(found) < limit:
            place = places.pop()
            if place < len(heap) and heap[place][0] <= until_ms:
                found.append(heap[place][1])
                places += (2 * place + 1, 2 * place + 2)
        return found

    def _narrow(self) -> None:
        """Forgets the later half of the deadlines of runs outside."""
        dues = sorted((due, run_id) for run_id, due in self._near.items())
        for _, run_id in dues[NEAR_MAX // 2 :]:
            del self._near[run_id]
            del self._queued[run_id]
        self._frontier = dues[NEAR_MAX // 2 - 1]
        self.soonest_ms = min(self.soonest_ms, self._frontier[0])

    def _widen(self) -> None:
        assert self._more is not None, "only with runs outside is there a frontier"
        after = None if self._frontier == _NONE else self._frontier
        dues, last = self._more(after, WINDOW)
        self._frontier = _ALL if last is None else last
        for due, run_id in dues:
            self._near[run_id] = due
            self.changed(run_id, due)

    def _surface(self) -> None:
        first = self._heap[0][0] if self._heap else NEVER
        self.soonest_ms = min(first, self._frontier[0])

    def next(self) -> Due | None:
        """The first deadline and its run; the entry stays until the run's deadline changes."""
        while True:
            found = self._first()
            if found is None and self._frontier == _ALL:
                self.soonest_ms = NEVER
                return None
            if found is not None and found <= self._frontier:
                self.soonest_ms = found[0]
                return found
            self._widen()

    def _first(self) -> Due | None:
        heap = self._heap
        while heap:
            queued, run_id = heap[0]
            if self._queued.get(run_id) != queued:
                heappop(heap)
                continue
            due = self._near.get(run_id)
            if due is None:
                due = self._due_of(run_id)
            if due == queued:
                return queued, run_id
            if due == NEVER:
                heappop(heap)
                del self._queued[run_id]
            else:
                heapreplace(heap, (due, run_id))
                self._queued[run_id] = due
        return None
