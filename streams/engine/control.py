"""Appends control events to the events topic, signed: ticks, and the verdicts of the monitor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiokafka.errors import KafkaError
from aiokafka.structs import RecordMetadata

from dalsegno.schemas import headers
from dalsegno.schemas.codec import encode
from dalsegno.schemas.control import ControlEvent, PartitionControl, RunControl
from dalsegno.schemas.mac import Keyring
from dalsegno.schemas.partitioner import partition_for
from dalsegno.streams.engine.encoding import OutRecord
from dalsegno.streams.engine.errors import OutcomeUnknownError
from dalsegno.streams.engine.producers import ProducerPool

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

    async def append(self, event: ControlEvent) -> RecordMetadata:
        """Append and wait: offset and append time (`.timestamp`, Unix ms).

        Raises `OutcomeUnknownError` if the broker did not take it, or may not have.
        """
        record = self.sign(event)
        producer = await self._pool.acquire(CONTROL_LANE)
        try:
            ack, _ = await producer.send([record])
            return await asyncio.shield(ack)
        except (KafkaError, OSError, AssertionError) as error:
            producer.spoilt = True
            raise OutcomeUnknownError(f"control event: {error!r}") from error
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
