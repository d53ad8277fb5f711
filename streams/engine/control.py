"""Appends control events to the events topic, signed: ticks, and the verdicts of the monitor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from dalsegno.schemas import headers
from dalsegno.schemas.codec import encode
from dalsegno.schemas.control import ControlEvent, PartitionControl, RunControl
from dalsegno.schemas.mac import Keyring
from dalsegno.schemas.partitioner import partition_for
from dalsegno.streams.engine.encoding import OutRecord
from dalsegno.streams.engine.producers import Appended, ProducerPool

CONTROL_LANE = "control-events"


class ControlAppender:
    """Signs and appends. Every kind is one-shot or numbered, so a repeat after a failure is
    harmless.
    """

    def __init__(
        self,
        pool: ProducerPool,
        topic: str,
        partition_count: Callable[[], int],
        keyring: Keyring,
        signing_key: str,
    ) -> None:
        self._pool = pool
        self._topic = topic
        self._partition_count = partition_count
        self._keyring = keyring
        self._signing_key = signing_key

    async def append(self, event: ControlEvent) -> Appended:
        """Append and wait: offset and append time.

        Raises `OutcomeUnknownError` if the broker did not take it, or may not have.
        """
        return (await self.append_all([event]))[0]

    async def append_all(self, events: Sequence[ControlEvent]) -> list[Appended]:
        """Append events together and wait for all: where each stands.

        Raises `OutcomeUnknownError`.
        """
        records = [self.sign(event) for event in events]
        producer = self._pool.acquire(CONTROL_LANE)
        try:
            waiting = [asyncio.ensure_future(producer.append(record)) for record in records]
            await asyncio.wait(waiting)
            return [done.result() for done in waiting]
        finally:
            await producer.release()

    def sign(self, event: ControlEvent) -> OutRecord:
        """The record of a control event, with its MAC."""
        value = encode(event)
        if isinstance(event, PartitionControl):
            partition, key = event.partition, str(event.partition).encode()
        elif isinstance(event, RunControl):
            partition = partition_for(event.run_id, self._partition_count())
            key = event.run_id.encode()
        else:
            raise TypeError(f"{type(event).__name__} is about neither a partition nor a run")
        mac = self._keyring.sign(self._signing_key, self._topic, partition, value)
        return OutRecord(self._topic, partition, key, value, [(headers.MAC, mac)])
