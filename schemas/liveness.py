"""Records of the heartbeats topic: never history, only the last ones matter."""

from __future__ import annotations

import msgspec


class Held(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One attempt that a worker holds. `progress` only grows within an attempt."""

    run_id: str
    step: str
    epoch: int
    progress: int = 0


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One record per worker, partition and interval, for all that the worker holds of the
    partition.

    A producer without the SDK may send one record per step. `attempt` as in the events.
    """

    partition: int
    worker: str
    incarnation: int
    held: tuple[Held, ...]
    sent_at_ms: int = 0


class Mark(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How far a queue's group had taken handoffs of one partition, as a worker found it.

    `offset`, `index`: sequence of the highest handoff taken (source offset, index).
    `worker`, `incarnation`: who committed it.
    """

    queue: str
    partition: int
    offset: int
    index: int
    worker: str
    incarnation: int


class Hello(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A worker has started. Goes to its home partition first with `incarnation` -1.

    The offset of that record is the worker's incarnation; the same hello then goes to every
    partition with it. Home partition: murmur2 of the worker's name.
    """

    partition: int
    worker: str
    incarnation: int
    host: str
    marks: tuple[Mark, ...] = ()
    sent_at_ms: int = 0


class Canary(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Written by a partition's monitor each 250 ms: it keeps the partition clock going."""

    partition: int
    monitor: str
    number: int
    sent_at_ms: int = 0
