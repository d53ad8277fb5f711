"""Dispatched attempts that have not started, and how far their queues were taken."""

from __future__ import annotations

from collections.abc import Iterator

from dalsegno.schemas.liveness import Mark
from dalsegno.streams.core.attempt import Attempt
from dalsegno.streams.core.liveness.watches import Key

Place = tuple[int, int]
"""Offset of the source event and index among its outputs: the order of handoffs in a queue."""

_NOTHING: Place = (-1, -1)


def place_of(attempt: Attempt) -> Place | None:
    """Where the attempt's handoff stands in its queue; None for a step that has none."""
    sequence = attempt.sequence
    return None if sequence is None else (sequence.offset, sequence.index)


def _limit_ms(attempt: Attempt) -> int:
    return max(0, attempt.start_by_ms - attempt.since_ms)


class _Queue:
    """One queue's part of the partition.

    `taken`: the highest handoff that is known to have been taken; `taken_by`: by which worker and
    incarnation. `others`: up to here workers of other names took them, so the end of `taken_by`'s
    earlier incarnations says nothing of those. `gone`: up to here they were taken by incarnations
    of that worker which are no more. `in_time`: what waits and is known to have been taken while
    there was time to start it.
    """

    __slots__ = ("gone", "in_time", "others", "taken", "taken_by", "taken_ms", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[Key, Attempt] = {}
        self.in_time: set[Key] = set()
        self.taken = _NOTHING
        self.taken_ms = 0
        self.taken_by: tuple[str, int] = ("", -1)
        self.others = _NOTHING
        self.gone = _NOTHING


class Handoffs:
    """What was handed out and not started, by queue: bounded by the attempts in flight.

    `margin_ms`: a handoff counts as taken in time up to so long before its start limit, or half of
    the limit if that is less. A queue with a backlog is read late, and whoever takes a handoff
    then rightly leaves it: that is no sign that a worker was lost.
    """

    __slots__ = ("_margin_ms", "_queues")

    def __init__(self, margin_ms: int) -> None:
        self._margin_ms = margin_ms
        self._queues: dict[str, _Queue] = {}

    def __len__(self) -> int:
        return sum(len(queue.waiting) for queue in self._queues.values())

    def put(self, key: Key, attempt: Attempt) -> None:
        """A handoff was sent."""
        queue = self._queue(attempt.queue)
        queue.waiting[key] = attempt
        queue.in_time.discard(key)
        self._note(queue, key, attempt)

    def pop(self, key: Key) -> tuple[Attempt, bool] | None:
        """The attempt started, or left. With it, whether a worker is known to have taken the
        handoff early enough to start it.
        """
        for queue in self._queues.values():
            attempt = queue.waiting.pop(key, None)
            if attempt is not None:
                in_time = key in queue.in_time
                queue.in_time.discard(key)
                return attempt, in_time
        return None

    def mark(self, mark: Mark, now_ms: int) -> None:
        """Take what a group's committed metadata says, in whatever order it becomes known.

        `now_ms`: append time (Unix ms) by which it said so.
        """
        queue = self._queue(mark.queue)
        place, (name, incarnation) = (mark.offset, mark.index), queue.taken_by
        if mark.worker == name and mark.incarnation < incarnation:
            queue.gone = max(queue.gone, place)
        elif place >= queue.taken:
            if mark.worker != name:
                queue.others, queue.gone = queue.taken, _NOTHING
            elif mark.incarnation > incarnation:
                queue.gone = queue.taken
            queue.taken_by = (mark.worker, mark.incarnation)
        if place > queue.taken:
            queue.taken, queue.taken_ms = place, now_ms
            for key, attempt in queue.waiting.items():
                self._note(queue, key, attempt)

    def _note(self, queue: _Queue, key: Key, attempt: Attempt) -> None:
        if not self.taken(attempt):
            return
        margin_ms = min(self._margin_ms, _limit_ms(attempt) // 2)
        if queue.taken_ms <= attempt.start_by_ms - margin_ms:
            queue.in_time.add(key)

    def taken(self, attempt: Attempt) -> bool:
        """Whether a worker is known to have taken the handoff, at whatever time."""
        queue = self._queues.get(attempt.queue)
        place = place_of(attempt)
        return queue is not None and place is not None and place <= queue.taken

    def restarted(self, worker: str, incarnation: int) -> Iterator[tuple[Key, Attempt]]:
        """The worker runs as `incarnation` now: yield what earlier ones took and never started."""
        for queue in self._queues.values():
            name, taken_as = queue.taken_by
            if name != worker:
                continue
            if taken_as < incarnation:
                queue.gone, queue.taken_by = queue.taken, (worker, incarnation)
            for key, attempt in queue.waiting.items():
                if self.orphaned(attempt):
                    yield key, attempt

    def orphaned(self, attempt: Attempt) -> bool:
        """Whether the incarnation that took the handoff is known to be gone."""
        queue = self._queues.get(attempt.queue)
        place = place_of(attempt)
        return queue is not None and place is not None and queue.others < place <= queue.gone

    def overdue(self, log_ms: int) -> Iterator[tuple[Key, Attempt]]:
        """Handoffs that were taken in time and whose `start_by` is at or before `log_ms`."""
        for queue in self._queues.values():
            for key, attempt in queue.waiting.items():
                if attempt.start_by_ms <= log_ms and key in queue.in_time:
                    yield key, attempt

    def unmarked(self, log_ms: int, age_ms: int) -> set[str]:
        """Queues with a handoff of which no mark tells, `age_ms` after it was sent.

        Sooner where the start limit is short: a mark read before it is the clearest evidence.
        """
        return {
            name
            for name, queue in self._queues.items()
            if any(
                log_ms - attempt.since_ms >= min(age_ms, _limit_ms(attempt) // 4)
                and not self.taken(attempt)
                for attempt in queue.waiting.values()
            )
        }

    def _queue(self, name: str) -> _Queue:
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = _Queue()
        return queue
