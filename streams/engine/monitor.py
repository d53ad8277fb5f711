"""What the engine offers a liveness monitor, and what it needs of one. One per owned partition."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from dalsegno.schemas.control import StallSuspected
from dalsegno.streams.engine.fold import AttemptChange


class RawRecord(NamedTuple):
    """A record of the heartbeats topic as it came. `at_ms`: append time."""

    offset: int
    at_ms: int
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...]


class MonitorFigures(NamedTuple):
    """What can be seen of a monitor. `verdicts`: appended since it began, by verdict.

    `canary_age_s`: since it last read a canary of its own; it is deaf when that grows. `strays`:
    heartbeats for attempts that are not in flight. Skew compares producers' clocks with the
    broker's.
    """

    running: int
    dispatched: int
    suspects: int
    canary_age_s: float
    verdicts: Mapping[str, int]
    strays: int
    unread: int
    producer_skew_ms_max: int
    producer_clocks_frozen: int


class MonitorHost(Protocol):
    """What a monitor may ask of the partition that it watches."""

    @property
    def number(self) -> int:
        """The partition."""

    @property
    def events_offset(self) -> int:
        """The fold has applied the events below this offset."""

    @property
    def log_ms(self) -> int:
        """Log time of the events, Unix ms."""

    async def append_verdicts(self, verdicts: Sequence[StallSuspected]) -> list[int]:
        """Sign and append to the events topic: the offset of each. Raises `OutcomeUnknownError`;
        repeats are harmless.
        """

    def caught_up(self) -> bool:
        """Whether the fold was at the end of the events within the last second."""


class PartitionMonitor(Protocol):
    """Watches the attempts in flight of one partition. All calls come on the event loop."""

    @property
    def look_back_ms(self) -> int:
        """How much of the heartbeats to read back at the start: the largest threshold."""

    def attempts(
        self, changes: Sequence[AttemptChange], completed: Collection[tuple[str, str]] = ()
    ) -> None:
        """Attempts that were dispatched, started or ended, in order, after each batch of events.

        `completed`: (run id, step) of those that the batch reported as completed.
        """

    def heartbeats(self, records: Sequence[RawRecord], end_offset: int, /) -> None:
        """Heartbeat records in order; `end_offset` is where the topic ended when they were
        fetched.
        """

    def figures(self) -> MonitorFigures:
        """The present state, for metrics."""

    async def close(self) -> None:
        """The partition is no longer ours: append nothing more."""


MonitorFactory = Callable[[MonitorHost], PartitionMonitor]
"""Called when a partition has been restored, before its first batch."""
