"""Stand-ins for Kafka's clients and for the worker around an effect."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from dalsegno.client import Flow, StepStopped
from dalsegno.schemas import values
from dalsegno.schemas.events import AttemptEvent, EffectIntended
from dalsegno.schemas.outputs import Handoff, JournalEntry
from dalsegno.streams.client.attempt import Attempt, StopReason
from dalsegno.streams.client.effects import Effects
from dalsegno.streams.core.effects import recovery_key

R = TypeVar("R")


@dataclass
class FakeMessage:
    topic_: str
    partition_: int
    offset_: int
    at_ms: int = 1_000

    def topic(self) -> str:
        return self.topic_

    def partition(self) -> int:
        return self.partition_

    def offset(self) -> int:
        return self.offset_

    def timestamp(self) -> tuple[int, int]:
        return (2, self.at_ms)


@dataclass
class Queued:
    topic: str
    value: bytes
    on_delivery: Callable[[KafkaError | None, FakeMessage], None]


class FakeKafka:
    """librdkafka as the producer sees it: a bounded local queue, and a broker that is on or off."""

    def __init__(self, config: dict[str, object]) -> None:
        self.limit = int(str(config["queue.buffering.max.messages"]))
        self.waiting: list[Queued] = []
        self.delivered: list[Queued] = []
        self.online = True
        self.error: KafkaError | None = None
        self.fatal = False
        self.purged = False
        self.refused = b""
        self.lock = threading.Lock()

    def produce(self, topic: str, **record: object) -> None:
        with self.lock:
            if self.fatal:
                raise KafkaException(KafkaError(KafkaError._FATAL, "fatal"))
            if len(self.waiting) >= self.limit:
                raise BufferError("Local: Queue full")
            if self.refused and record["value"] == self.refused:
                raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "too large"))
            # type: ignore[arg-type]
            self.waiting.append(Queued(topic, record["value"], record["on_delivery"]))

    def poll(self, timeout: float) -> int:
        with self.lock:
            ready = self.waiting if self.online else []
            if self.online:
                self.waiting = []
        for queued in ready:
            if self.error is None:
                self.delivered.append(queued)
            message = FakeMessage(queued.topic, 0, len(self.delivered))
            queued.on_delivery(self.error, message)
        if not ready:
            threading.Event().wait(min(timeout, 0.002))
        return len(ready)

    def flush(self, timeout: float) -> int:
        if self.purged:
            with self.lock:
                ready, self.waiting = self.waiting, []
            for queued in ready:
                queued.on_delivery(
                    KafkaError(KafkaError._PURGE_QUEUE), FakeMessage(queued.topic, 0, -1)
                )
            return 0
        self.poll(0)
        return len(self)

    def purge(self) -> None:
        self.purged = True

    def __len__(self) -> int:
        return len(self.waiting)


def handoff(**changes: object) -> Handoff:
    """A handoff of run `r`, step `s`, epoch 1; as the service would send it."""
    run_id = str(changes.get("run_id", "r"))
    step = str(changes.get("step", "s"))
    fields: dict[str, object] = {
        "run_id": run_id,
        "flow": "f",
        "flow_version": 1,
        "step": step,
        "epoch": 1,
        "goal": "",
        "inputs": values.pack({"a": {"list": [1]}}),
        "run_version": 1,
        "recovery_key": recovery_key(run_id, step),
        "dispatched_at_ms": 0,
        "start_by_ms": 1_000_000,
        "timeout_ms": 60_000,
        "heartbeat_ms": 1_000,
    }
    return Handoff(**{**fields, **changes})  # type: ignore[arg-type]


def attempt(unknown: str = "retry", **changes: object) -> Attempt:
    """An attempt of a step that reads `a` and `missing`, and writes `x`."""
    flow = Flow("f")

    # type: ignore[typeddict-item]
    @flow.step(name="s", reads=["a", "missing"], writes=["x"], unknown=unknown)
    async def body(ctx: object) -> None:
        return None

    step = flow.get("s")
    assert step is not None
    return Attempt(handoff(**changes), step, 0, "")


@dataclass
class FakeGate:
    """The worker around effects: keeps what was reported, in order, and may say no."""

    reported: list[AttemptEvent] = field(default_factory=list)
    permitted: list[EffectIntended] = field(default_factory=list)
    may_act: bool = True

    async def report(self, attempt: Attempt, event: AttemptEvent) -> None:
        self.reported.append(event)

    async def permission(self, attempt: Attempt, event: EffectIntended) -> None:
        self.permitted.append(event)

    def check_may_act(self, attempt: Attempt) -> None:
        if not self.may_act or attempt.stopped is not None:
            attempt.stopped = attempt.stopped or StopReason.LEASE
            raise StepStopped(attempt.stopped)

    async def in_thread(self, work: Callable[[], R]) -> R:
        return await asyncio.to_thread(work)


def effects_of(gate: FakeGate, *journal: JournalEntry, unknown: str = "retry") -> Effects:
    return Effects(attempt(unknown, effects=journal), gate)
