"""What the transport delivers to an agent: one fetch of one partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dalsegno.streams.engine.raw import RawEvent


class Receiver(Protocol):
    """Who handles a batch: the partition task that asked for it."""

    def process(self, batch: Batch) -> None:
        """Handle it whole. Never raises: what goes wrong stays with the task."""

    def dropped(self, batch: Batch) -> None:
        """Nobody will hand it over: ask for its records anew."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a task is ready to read: from `position` on, and nothing else. `ticket` dies with a
    rebuild.
    """

    position: int
    ticket: int


@dataclass(slots=True)
class Batch:
    """Records in log order. `next_position` may be past the last record: transaction markers
    count. `begun`: an agent has handed it over.
    """

    receiver: Receiver
    ticket: int
    records: Sequence[RawEvent]
    next_position: int
    end_offset: int
    begun: bool = False

    def process(self) -> None:
        """Hand it to the task that asked for it."""
        self.begun = True
        self.receiver.process(self)
