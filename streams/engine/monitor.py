"""What the engine offers a liveness monitor, and what it needs of one. One per owned partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from aiokafka.structs import RecordMetadata

from dalsegno.schemas.control import ControlEvent
from dalsegno.streams.engine.fold import AttemptChange


class RawRecord(NamedTuple):
    """A record of the heartbeats topic as it came. `at_ms`: append time."""

    offset: int
    at_ms: int
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...]


class MonitorHost(Protocol):
    """What a monitor may ask of the partition that it watches."""

    @property
    def number(self) -> int:
        """The partition."""

    @property
    def events_offset(self) -> int:
        """The fold has applied the events below this offset."""

    async def append_control(self, event: ControlEvent) -> RecordMetadata:
        """Sign and append to the events topic. Raises `OutcomeUnknownError`; repeats are
        harmless.
        """

    def caught_up(self) -> bool:
        """Whether the fold was at the end of the events within the last second."""


class PartitionMonitor(Protocol):
    """Watches the attempts in flight of one partition. All calls come on the event loop."""

    @property
    def look_back_ms(self) -> int:
        """How much of the heartbeats to read back at the start: the largest threshold."""

    def attempts(self, changes: Sequence[AttemptChange]) -> None:
        """Attempts that were dispatched, started or ended, in order, after each batch of events."""

    def heartbeats(self, records: Sequence[RawRecord], end_offset: int) -> None:
        """Heartbeat records in order; `end_offset` is where the topic ended when they were
        fetched.
        """

    async def close(self) -> None:
        """The partition is no longer ours: append nothing more."""


MonitorFactory = Callable[[MonitorHost], PartitionMonitor]
"""Called when a partition has been restored, before its first batch."""
