"""Which of the waiting steps goes next, wherever several of them compete for one quota or budget.

Between runs: the run with the least remaining estimated work first; a quarter of the width is kept
for the run with the worst slowdown, so that nothing long starves. Within a run: the step with the
highest upward rank (`ranks.py`). Ties go by waiting since, then by run id, then by the step's
place. The answer is a function of what waits, of `balance_ms` and of the time asked about, never of
the order in which steps were added.

    order = WaitOrder()
    order.put("run-1", place, rank_ms=..., usual_ms=..., standing=Standing(...))
    order.restand("run-1", standing)     # a step of the run completed: less work remains
    order.first(now_ms)                  # (run id, place) that `take` would give, or None
    order.take(now_ms)                   # gives it, and charges the share that it goes to
    order.remove("run-1", place)         # it waits no more: cancelled, superseded, expired
    order.drop("run-1")                  # nothing of the run waits any more
    order.turns(now_ms, 10)              # the next ten, left where they are
    order.entries()                      # everything that waits, for a checkpoint or a preview
    WaitOrder.load(entries, balance_ms)  # the same order again

Cost: O(log n) for each call but `entries` and `load`, amortised over the stale entries that lazy
heaps leave behind; nothing scans what waits. The slowdown of a run that waits grows with time at a
pace of its own, so no one heap can order them: runs are kept in classes of equal pace (their
expected time, rounded down to two binary digits), whose order among themselves time cannot change,
and a decision compares the heads of at most two classes an octave.

The width is not known here, nor who still runs. So the quarter is one of estimated time: what goes
to the most slowed is charged three times, what goes to the others once, and the share that is
behind has the next turn. Counting decisions instead gave the kept share, whose steps are longer,
more than its quarter, and did not lower the worst slowdown on real graphs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final

import msgspec

# One part in so many of the estimated time goes to the run with the worst slowdown.
KEPT_ONE_IN: Final = 4
# Below it all runs are equally short: a slowdown of a few milliseconds' work says nothing.
EXPECTED_MS_MIN: Final = 500
# Stale entries of a lazy heap, beyond twice what waits, before it is built anew.
_SLACK: Final = 64


class Standing(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Where a run stands among those that wait. Integers, milliseconds.

    `since_ms`: when it was damaged (log time). `work_ms`: remaining estimated work, the sum over
    its unfinished steps. `expected_ms`: the critical path through them, as estimated when the run
    was damaged.
    """

    since_ms: int
    work_ms: int
    expected_ms: int


class Waiting(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One step that waits. `rank_ms`: its upward rank; `usual_ms`: what it is estimated to take."""

    run_id: str
    place: int
    rank_ms: int
    usual_ms: int
    standing: Standing


class _Line:
    """What waits of one run: a lazy heap of (-rank, place), and (rank, usual) of each place."""

    __slots__ = ("heap", "standing", "steps")

    def __init__(self, standing: Standing) -> None:
        self.standing = standing
        self.heap: list[tuple[int, int]] = []
        self.steps: dict[int, tuple[int, int]] = {}

    def put(self, place: int, rank_ms: int, usual_ms: int) -> None:
        known = self.steps.get(place)
        self.steps[place] = (rank_ms, usual_ms)
        if known is None or known[0] != rank_ms:
            heappush(self.heap, (-rank_ms, place))

    def top(self) -> int:
        heap, steps = self.heap, self.steps
        while (found := steps.get(heap[0][1])) is None or found[0] != -heap[0][0]:
            heappop(heap)
        return heap[0][1]


def pace(standing: Standing) -> int:
    """The class of a run's slowdown: its expected time, rounded down to two binary digits."""
    expected = max(EXPECTED_MS_MIN, standing.expected_ms)
    shift = expected.bit_length() - 2
    return expected >> shift << shift


class WaitOrder:
    """The waiting steps of one fault point, or of one dispatch budget. Not thread-safe.

    `balance_ms` says which share is behind (0 and above: the kept one); it is part of the state
    that a checkpoint keeps. At most `KEPT_ONE_IN` times the longest step, either way.
    """

    __slots__ = ("_entries", "_least", "_lines", "_slow", "_steps", "balance_ms")

    def __init__(self, balance_ms: int = 0) -> None:
        self.balance_ms = balance_ms
        self._lines: dict[str, _Line] = {}
        self._least: list[tuple[int, int, str]] = []
        self._slow: dict[int, list[tuple[int, str]]] = {}
        self._entries = 0
        self._steps = 0

    def __len__(self) -> int:
        """How many steps wait."""
        return self._steps

    def __contains__(self, key: tuple[str, int]) -> bool:
        """Whether a step (run id, place) waits."""
        line = self._lines.get(key[0])
        return line is not None and key[1] in line.steps

    def holds_run(self, run_id: str) -> bool:
        """Whether any step of a run waits."""
        return run_id in self._lines

    def put(
        self, run_id: str, place: int, *, rank_ms: int, usual_ms: int, standing: Standing
    ) -> None:
        """A step waits. Putting it again gives it the new rank; its run has the new standing."""
        line = self._lines.get(run_id)
        if line is None:
            line = self._lines[run_id] = _Line(standing)
            self._stand(run_id, standing)
        elif line.standing != standing:
            line.standing = standing
            self._stand(run_id, standing)
        self._steps += place not in line.steps
        line.put(place, rank_ms, usual_ms)

    def restand(self, run_id: str, standing: Standing) -> None:
        """The run's standing has changed; nothing happens when nothing of it waits."""
        line = self._lines.get(run_id)
        if line is not None and line.standing != standing:
            line.standing = standing
            self._stand(run_id, standing)

    def remove(self, run_id: str, place: int) -> bool:
        """The step waits no more. False when it did not."""
        line = self._lines.get(run_id)
        if line is None or line.steps.pop(place, None) is None:
            return False
        self._steps -= 1
        if not line.steps:
            del self._lines[run_id]
        return True

    def drop(self, run_id: str) -> None:
        """Nothing of the run waits any more."""
        line = self._lines.pop(run_id, None)
        if line is not None:
            self._steps -= len(line.steps)

    def first(self, now_ms: int) -> tuple[str, int] | None:
        """What goes next at log time `now_ms`: (run id, place of the step), or None."""
        if not self._lines:
            return None
        run_id = self._slowest(now_ms) if self.balance_ms >= 0 else self._shortest()
        return run_id, self._lines[run_id].top()

    def take(self, now_ms: int) -> tuple[str, int] | None:
        """Gives what goes next and charges its share. None when nothing waits."""
        found = self.first(now_ms)
        if found is not None:
            usual_ms = self._lines[found[0]].steps[found[1]][1]
            kept = self.balance_ms >= 0
            self.balance_ms += -(KEPT_ONE_IN - 1) * usual_ms if kept else usual_ms
            self.remove(*found)
        return found

    def turns(self, now_ms: int, most: int) -> list[tuple[str, int]]:
        """The next `most` turns if nothing else happened, found by taking them and putting them
        back: O(most · log n).
        """
        balance_ms = self.balance_ms
        taken: list[Waiting] = []
        while len(taken) < most and (found := self.first(now_ms)) is not None:
            line = self._lines[found[0]]
            taken.append(Waiting(*found, *line.steps[found[1]], line.standing))
            self.take(now_ms)
        for each in taken:
            self._put(each)
        self.balance_ms = balance_ms
        return [(each.run_id, each.place) for each in taken]

    def standings(self) -> Iterator[tuple[str, Standing]]:
        """Every run that waits, in no order."""
        for run_id, line in self._lines.items():
            yield run_id, line.standing

    def entries(self) -> list[Waiting]:
        """Everything that waits, by run id and place: equal orders have equal entries."""
        return [
            Waiting(run_id, place, *line.steps[place], line.standing)
            for run_id, line in sorted(self._lines.items())
            for place in sorted(line.steps)
        ]

    @classmethod
    def load(cls, entries: Iterable[Waiting], balance_ms: int = 0) -> WaitOrder:
        """The order that `entries` and `balance_ms` came from."""
        order = cls(balance_ms)
        for each in entries:
            order._put(each)
        return order

    def _put(self, each: Waiting) -> None:
        self.put(
            each.run_id,
            each.place,
            rank_ms=each.rank_ms,
            usual_ms=each.usual_ms,
            standing=each.standing,
        )

    def _stand(self, run_id: str, standing: Standing) -> None:
        heappush(self._least, (standing.work_ms, standing.since_ms, run_id))
        heappush(self._slow.setdefault(pace(standing), []), (standing.since_ms, run_id))
        self._entries += 1
        if self._entries > 2 * len(self._lines) + _SLACK:
            self._rebuild()

    def _rebuild(self) -> None:
        """Without the stale entries: what it costs was saved up by as many calls as it drops."""
        standings = [(run_id, line.standing) for run_id, line in self._lines.items()]
        self._least = [(s.work_ms, s.since_ms, run_id) for run_id, s in standings]
        heapify(self._least)
        self._slow = {}
        for run_id, s in standings:
            self._slow.setdefault(pace(s), []).append((s.since_ms, run_id))
        for heap in self._slow.values():
            heapify(heap)
        self._entries = len(standings)

    def _shortest(self) -> str:
        heap, lines = self._least, self._lines
        while True:
            work_ms, since_ms, run_id = heap[0]
            line = lines.get(run_id)
            if line is not None:
                standing = line.standing
                if standing.work_ms == work_ms and standing.since_ms == since_ms:
                    return run_id
            heappop(heap)

    def _slowest(self, now_ms: int) -> str:
        """The head of each class, compared as exact fractions: waited over expected."""
        best: tuple[int, str] | None = None
        over = 1
        for expected in list(self._slow):
            head = self._head(expected)
            if head is None:
                continue
            if best is not None:
                left = (now_ms - head[0]) * over
                right = (now_ms - best[0]) * expected
                if left < right or (left == right and head > best):
                    continue
            best, over = head, expected
        assert best is not None, "each run that waits stands in a class"
        return best[1]

    def _head(self, expected: int) -> tuple[int, str] | None:
        heap, lines = self._slow[expected], self._lines
        while heap:
            since_ms, run_id = heap[0]
            line = lines.get(run_id)
            if line is not None:
                standing = line.standing
                if standing.since_ms == since_ms and pace(standing) == expected:
                    return heap[0]
            heappop(heap)
        del self._slow[expected]
        return None
