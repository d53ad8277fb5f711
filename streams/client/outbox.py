"""Between the producer's thread and an event loop: outcomes cross in batches, one wake-up for
many.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from dalsegno.streams.client.errors import DeliveryFailed
from dalsegno.streams.client.producer import OutRecord, Producer, Receipt

Told = Callable[[Receipt | None, DeliveryFailed | None], None]


class Outbox:
    """Sends for coroutines of one loop.

    `undelivered`: what coroutines have sent and no acknowledgement has come for, by identity, since
    a record that failed is sent again as it is.
    """

    def __init__(
        self,
        producer: Producer,
        loop: asyncio.AbstractEventLoop,
        undelivered: dict[int, OutRecord] | None = None,
    ) -> None:
        self._undelivered = {} if undelivered is None else undelivered
        self._producer = producer
        self._loop = loop
        self._outcomes: deque[tuple[Told, Receipt | None, DeliveryFailed | None]] = deque()
        self._woken = False

    async def send(self, record: OutRecord) -> Receipt:
        """Returns when acknowledged. Raises `DeliveryFailed`: the outcome is unknown."""
        future: asyncio.Future[Receipt] = self._loop.create_future()
        self._undelivered[id(record)] = record
        self.post(record, partial(self._settle, future, record))
        return await future

    def forget(self, record: OutRecord) -> None:
        """It need not be delivered any more."""
        self._undelivered.pop(id(record), None)

    def post(self, record: OutRecord, told: Told) -> None:
        """Send from any thread; `told` is called on the loop."""
        self._producer.send(record, partial(self._done, told))

    def _done(self, told: Told, receipt: Receipt | None, error: DeliveryFailed | None) -> None:
        self._outcomes.append((told, receipt, error))
        # Level-triggered: `_drain` clears the flag before it looks, so an outcome is never left
        # behind.
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        self._woken = False
        outcomes = self._outcomes
        while outcomes:
            told, receipt, error = outcomes.popleft()
            told(receipt, error)

    def _settle(
        self,
        future: asyncio.Future[Receipt],
        record: OutRecord,
        receipt: Receipt | None,
        error: DeliveryFailed | None,
    ) -> None:
        if receipt is not None:
            self.forget(record)
        if future.done():  # its waiter was cancelled; the record may be in the log all the same
            return
        if receipt is not None:
            future.set_result(receipt)
        elif error is not None:
            future.set_exception(error)
