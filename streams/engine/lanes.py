"""Lanes: what is read of one partition, from exactly one position on, for one reader of it.

A lane lives from the position it was opened at until it is closed. The reader's thread fills it,
the event loop empties it; each writes only its own fields. A position that does not follow from
what came before opens a new lane, so nothing that was fetched for another one is ever handed out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from aiokafka import TopicPartition

from dalsegno.streams.engine.raw import RawEvent

RECORDS_MAX: Final = 8_000
BYTES_MAX: Final = 16 << 20
"""What may wait in a lane before it is fetched no further; it goes on below half of that."""


class Fetched(NamedTuple):
    """Records from the wanted position on, and where the next fetch starts. `next_position` may be
    past the last record: transaction markers count.
    """

    records: Sequence[RawEvent]
    next_position: int
    end_offset: int


@dataclass(slots=True)
class _Load:
    records: int = 0
    size_bytes: int = 0


class Lane:
    """`position`: of the next record to hand out. `fetched`: of the next one to come."""

    def __init__(self, place: TopicPartition, position: int) -> None:
        self.place = place
        self.position = position
        self.fetched = position
        self.error: Exception | None = None
        self.not_before_s = 0.0
        self._fresh = True
        self._doubt: int | None = None
        self._ready: deque[Fetched] = deque()
        self._put = _Load()
        self._taken = _Load()

    # The reader's thread.

    def assigned(self) -> None:
        """Fetching begins, at `fetched`."""
        self._fresh = True

    def follows(self, offset: int) -> bool:
        """Whether what stands at `offset` is the next. If not, it has to be fetched anew.

        Offsets may be missing: those of markers and of aborted transactions. Right behind the start
        of a fetch that could also be a record of an earlier one, so there it must come twice.
        """
        if offset == self.fetched or (offset > self.fetched and not self._fresh):
            return True
        if offset > self.fetched and self._doubt == offset:
            return True
        self._doubt = offset
        return False

    def heard(self, next_position: int) -> None:
        """All below is here."""
        self.fetched = next_position
        self._fresh = False
        self._doubt = None

    def put(self, records: Sequence[RawEvent], end_offset: int) -> None:
        """Hand over what came; `fetched` says how far it reaches."""
        self._put.records += len(records)
        self._put.size_bytes += _size(records)
        self._ready.append(Fetched(records, self.fetched, max(end_offset, self.fetched)))

    def full(self, *, parked: bool) -> bool:
        """Whether no more is fetched for now. `parked`: it was full before."""
        share = 2 if parked else 1
        return (
            self._put.records - self._taken.records >= RECORDS_MAX // share
            or self._put.size_bytes - self._taken.size_bytes >= BYTES_MAX // share
        )

    # The event loop.

    def take(self, records_max: int) -> Fetched | None:
        """The next records, no more than that; None when nothing is there."""
        ready, end = self._ready, 0
        records: list[RawEvent] = []
        while ready and len(records) < records_max:
            chunk = ready.popleft()
            room = records_max - len(records)
            if len(chunk.records) > room:
                ready.appendleft(chunk._replace(records=chunk.records[room:]))
                chunk = Fetched(
                    chunk.records[:room], chunk.records[room - 1].offset + 1, chunk.end_offset
                )
            if not records:
                records = list(chunk.records)
            else:
                records.extend(chunk.records)
            self.position, end = chunk.next_position, chunk.end_offset
        if not end:
            return None
        self._taken.records += len(records)
        self._taken.size_bytes += _size(records)
        return Fetched(records, self.position, end)


def _size(records: Sequence[RawEvent]) -> int:
    return sum(len(record.value or b"") + len(record.key or b"") for record in records)
