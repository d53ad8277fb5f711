"""An attempt that this worker holds, from the commit that took it until it is reported or
abandoned.
"""

from __future__ import annotations

import asyncio
import weakref
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Protocol

from dalsegno.schemas.outputs import Handoff
from dalsegno.streams.client.blobs import Blobs, Patience
from dalsegno.streams.client.large import Large

if TYPE_CHECKING:
    from dalsegno.streams.client.step import Step

AttemptId = tuple[str, str, int]
"""(run id, step, epoch)"""


class StopReason(StrEnum):
    """Why an attempt must stop. After any of them it reports nothing."""

    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"
    LEASE = "lease"
    FENCED = "fenced"
    SHUTDOWN = "shutdown"


class Beating(Protocol):
    """What heartbeats tell of: an attempt, whoever drives it. `stopped`: nothing more is sent."""

    partition: int
    progress: int
    started_sent_s: float
    stopped: StopReason | None

    @property
    def id(self) -> AttemptId: ...

    @property
    def heartbeat_ms(self) -> int: ...


class Attempt:
    """Mutable state of one held attempt. Times in seconds of the worker's lease clock.

    `started_sent_s`: when its `StepStarted` was sent; the first sign of life that the monitor
    counts.
    `progress` only grows. `stopped` is set once, by any thread, and never unset. `cancelled`: its
    task has been told. `not_kept`: why the service's journal lacks what this attempt reported.
    `large`: values of its run that are kept as blobs.
    """

    __slots__ = (
        "__weakref__",
        "cancelled",
        "effects",
        "handoff",
        "large",
        "not_kept",
        "partition",
        "progress",
        "started_sent_s",
        "step",
        "stopped",
        "task",
        "trace",
    )

    def __init__(
        self,
        handoff: Handoff,
        step: Step,
        partition: int,
        trace: str,
        blobs: Blobs | None = None,
    ) -> None:
        self.handoff = handoff
        self.step = step
        self.partition = partition
        self.trace = trace
        self.progress = 0
        self.started_sent_s = 0.0
        self.stopped: StopReason | None = None
        self.task: asyncio.Task[None] | None = None
        self.cancelled = False
        self.not_kept = ""
        self.effects: set[asyncio.Task[object]] = set()
        # Weak: an attempt that is over must not wait for the garbage collector.
        patience = Patience(handoff.timeout_ms / 1_000, partial(_has_stopped, weakref.ref(self)))
        self.large = Large(blobs, partition, patience, step.secrets)

    @property
    def id(self) -> AttemptId:
        handoff = self.handoff
        return (handoff.run_id, handoff.step, handoff.epoch)

    @property
    def heartbeat_ms(self) -> int:
        return self.handoff.heartbeat_ms


def _has_stopped(attempt: weakref.ref[Attempt]) -> bool:
    found = attempt()
    return found is None or found.stopped is not None
