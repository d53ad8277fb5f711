"""What all partitions of one engine process share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from aiokafka import TopicPartition

from dalsegno.schemas.intake import Intake
from dalsegno.storage.archive.objects import Objects
from dalsegno.storage.blobs.store import BlobStore
from dalsegno.streams.core.faultpoint.actors import FaultPoints
from dalsegno.streams.engine.control import ControlAppender
from dalsegno.streams.engine.errors import PartitionStoppedError
from dalsegno.streams.engine.fold import Clock, FoldFactory
from dalsegno.streams.engine.metrics import EngineMetrics
from dalsegno.streams.engine.monitor import MonitorFactory
from dalsegno.streams.engine.producers import RECORD_BYTES_MAX, ProducerPool
from dalsegno.streams.engine.settings import EngineSettings
from dalsegno.streams.engine.warm_tier import WarmTier


@dataclass(frozen=True, slots=True)
class Layout:
    """The topics as the start-up checks found them, by name: partitions, and the bytes that one
    record may have; where none are given, a policy bounds them, and may do so anew at any time.
    """

    partitions: int
    counts: Mapping[str, int]
    size_max: Mapping[str, int]
    queues: tuple[str, ...]

    def size_of(self, topic: str) -> int:
        """Bytes that one record of the topic may have: a larger one leaves without its value."""
        return self.size_max.get(topic, RECORD_BYTES_MAX)


class Group(Protocol):
    """The consumer group, as the partitions see it."""

    def wake(self) -> None:
        """A task is ready for its next batch."""

    def silent_s(self) -> float:
        """For how long the group has not heard us although its broker answers, in seconds."""

    def unconfirmed_s(self) -> float:
        """For how long no heartbeat has said that our place is ours, in seconds."""

    async def still_member(self) -> bool:
        """Ask the group whether we are still in it. Never gives up while the broker is away."""

    async def committed(self, topic: str, partition: int) -> int | None:
        """The group's offset, or None if it has none."""

    async def commit_positions(self, positions: Mapping[TopicPartition, int]) -> None:
        """Commit for lag tools."""

    async def offset_at(self, topic: str, partition: int, at_ms: int) -> int:
        """The first offset appended at or after `at_ms`, else the end."""


class PartitionActor(Protocol):
    """The fault points that run beside one events partition."""

    @property
    def fold(self) -> FaultPoints | None:
        """Their state, None while they are being opened."""

    @property
    def stopped(self) -> PartitionStoppedError | None:
        """Why it waits for a person, if it does."""

    async def close(self) -> None:
        """The partition is no longer ours."""


class ActorFactory(Protocol):
    """Makes the actor of a partition that was opened."""

    def __call__(self, context: EngineContext, number: int) -> PartitionActor:
        """It runs until it is closed."""


@dataclass(slots=True)
class EngineContext:
    """Shared parts. `group` is set once the consumer exists, before any partition is assigned."""

    settings: EngineSettings
    layout: Layout
    folds: FoldFactory
    intake: Intake
    pool: ProducerPool
    control: ControlAppender
    metrics: EngineMetrics
    clock: Clock
    url: str
    monitors: MonitorFactory | None = None
    actors: ActorFactory | None = None
    warm: WarmTier | None = None
    blobs: BlobStore | None = None
    objects: Objects | None = None
    """The bucket, if there is one: the one client of this process, made before its threads."""
    group: Group | None = None

    def joined(self) -> Group:
        """The group. A broken invariant if there is none yet."""
        assert self.group is not None
        return self.group
