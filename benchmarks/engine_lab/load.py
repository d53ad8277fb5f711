"""Real events: runs of a chain of steps, as their workers would report them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import msgspec
from confluent_kafka import Producer

from dalsegno.schemas.codec import encode
from dalsegno.schemas.events import RunEvent, RunStarted, StepCompleted, StepStarted
from dalsegno.schemas.partitioner import partition_for
from dalsegno.schemas.plan import Plan, StepPlan

pack = msgspec.msgpack.encode
STEPS = 5
EVENTS_PER_RUN = 2 * STEPS + 1
WIDTH = 100
"""Runs that are under way at a time."""

PLAN = Plan(
    steps=tuple(
        StepPlan(
            name=f"step{i}",
            needs=(f"step{i - 1}",) if i else (),
            reads=("input",) if i == 0 else (f"out{i - 1}",),
            writes=(f"out{i}",),
            queue="default",
            timeout_ms=60_000,
            goal="benchmark",
        )
        for i in range(STEPS)
    )
)


def run_events(run_id: str) -> Iterator[RunEvent]:
    """All events of one run that goes well: each gives a transition, nearly each second a
    handoff.
    """
    yield RunStarted(
        run_id=run_id,
        flow="bench",
        flow_version=1,
        plan=PLAN,
        context=pack({"input": {"amount": 1200, "name": "x" * 40}}),
    )
    for i in range(STEPS):
        step = {"run_id": run_id, "step": f"step{i}", "epoch": 1}
        yield StepStarted(**step, worker="bench", incarnation=1)
        yield StepCompleted(**step, ops=pack([["set", [f"out{i}"], {"value": i, "ok": True}]]))


def events(runs: int, prefix: str = "run") -> Iterator[RunEvent]:
    """Events of many runs, `WIDTH` of them interleaved at a time."""
    names = iter(f"{prefix}-{i:07d}" for i in range(runs))
    while block := [run_events(name) for name in islice(names, WIDTH)]:
        for _ in range(EVENTS_PER_RUN):
            for run in block:
                yield next(run)


class Loader:
    """Appends events to their partitions, as the contract wants it."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._topic = topic
        self._partitions = partitions
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 0,
                "acks": "all",
                "enable.idempotence": True,
                "queue.buffering.max.messages": 1_000_000,
            }
        )

    def send(self, event: RunEvent) -> None:
        """Queue one event."""
        partition = partition_for(event.run_id, self._partitions)
        key = event.run_id.encode()
        self._producer.produce(self._topic, encode(event), key, partition=partition)
        self._producer.poll(0)

    def flush(self) -> None:
        """Wait until all are acknowledged."""
        self._producer.flush()
