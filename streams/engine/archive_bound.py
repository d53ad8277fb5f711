"""How far a partition may run ahead of its archive.

Intake never waits for a request to the store. But what is not archived stays in Kafka and on the
engine's disk, so there is a bound: at it the partition reads no further until the archive is
nearer. What it has read goes on to its end, nothing is refused, and nothing is decided by it: the
fold of the log is the same whenever it is read.
"""

from __future__ import annotations

from collections.abc import Callable

from dalsegno.streams.core.partition import Partition
from dalsegno.streams.engine.archive_settings import ArchiveSettings
from dalsegno.streams.engine.fold import Fold


class ArchiveBound:
    """For one partition task. Offsets are those of the events topic. `moved`: called when the
    archive has come nearer.
    """

    def __init__(self, settings: ArchiveSettings, moved: Callable[[], None]) -> None:
        self._moved = moved
        self._bound = settings.backlog_events if settings.enabled else None
        self._said = (-1, 0)

    def said(self, offset: int, end: int) -> None:
        """Our own word that events below `end` are archived stands in the log at `offset`."""
        self._said = (offset, end)
        self._moved()

    def archived_to(self, fold: Partition) -> int:
        """The first offset that is not archived: by the fold, or by a word that the fold has not
        read yet. What the fold makes of that word counts once it has.
        """
        offset, end = self._said
        return max(fold.archived_to, end) if fold.position <= offset else fold.archived_to

    def is_ours(self, fold: Partition, offset: int) -> bool:
        """Whether our own word stands at this offset: it alone is nothing to archive."""
        return self._said[0] == offset and fold.position > offset

    def backlog(self, fold: Fold | None) -> int:
        """Events that the fold has applied and the archive does not have."""
        if self._bound is None or not isinstance(fold, Partition):
            return 0
        return max(0, fold.position - self.archived_to(fold))

    def full(self, fold: Fold | None) -> bool:
        """Whether the partition has to wait for its archive."""
        return self._bound is not None and self.backlog(fold) > self._bound
