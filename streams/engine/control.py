"""Appends control events to the events topic, signed: ticks, and the verdicts of the monitor."""

from __future__ import annotations

from collections.abc import Sequence

from dalsegno.schemas.control import ControlEvent
from dalsegno.streams.engine.producers import Appended, ProducerPool
from dalsegno.streams.engine.signing import Signer

CONTROL_LANE = "control-events"


class ControlAppender:
    """Signs and appends. Every kind is one-shot or numbered, so a repeat after a failure is
    harmless.
    """

    def __init__(self, pool: ProducerPool, signer: Signer) -> None:
        self._pool = pool
        self._signer = signer

    async def append(self, event: ControlEvent, key_id: str) -> Appended:
        """Append and wait: offset and append time. `key_id`: the MAC key to sign with.

        Raises `OutcomeUnknownError` if the broker did not take it, or may not have;
        `NotSignedError` without a key.
        """
        return (await self.append_all([event], key_id))[0]

    async def append_all(self, events: Sequence[ControlEvent], key_id: str) -> list[Appended]:
        """Append events together and wait for all: where each stands.

        Raises `OutcomeUnknownError`, `NotSignedError`.
        """
        records = [self._signer.record(event, key_id) for event in events]
        producer = self._pool.acquire(CONTROL_LANE)
        try:
            return await producer.append_all(records)
        finally:
            await producer.release()
