"""Outputs of one partition leave here: at once, in order, and nothing after a failure.

Why so: a record of a channel may be appended only when every smaller sequence of that channel is in
its log. So first occurrences are in order and without gaps, however many former owners still write;
readers drop repeats by the high-water mark. The producer keeps that order (see `producers`); after
its first failure a channel gives it nothing more, until all is rebuilt from the last checkpoint.

The broker helps: it refuses a batch whose predecessor is missing. But not of a producer that it
does not know in that partition, or has forgotten: there it takes any batch for the first. So the
first record goes alone, and everything else follows when it has been appended.

For the same reason only the last of what leaves together is heard of: it was appended if all before
it were. In channels that go to several partitions each record is heard of by itself.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from confluent_kafka import KafkaError, Message

from dalsegno.streams.core.actions import Output
from dalsegno.streams.core.sequence import Sequence
from dalsegno.streams.engine.encoding import KEYED_CHANNELS, Encoder, OutRecord
from dalsegno.streams.engine.errors import OutcomeUnknownError
from dalsegno.streams.engine.producers import IdempotentProducer, write_lost

FAST_LANE: Final = "fast"
RECORD_LANE: Final = "record"
LINGER_MS: Final = {FAST_LANE: 0.2, RECORD_LANE: 5.0}
"""By lane: long enough for what is flushed together. Nobody waits for an audit record."""

BATCH_RECORDS_MAX: Final = 4_000
FIRST_RECORDS: Final = 1
_KNOWN_S: Final = 3_600.0
"""For so long after an append its producer is known; Kafka forgets one after a day
(`producer.id.expiration.ms`).
"""

_QUEUE: Final = "queue."
_TOPIC_RETRY_S: Final = 1.0


def lane_of(channel: str) -> str:
    """Which producer a channel uses."""
    return FAST_LANE if channel.startswith(_QUEUE) or channel == "control" else RECORD_LANE


class Channel:
    """One output channel: what gathers while records are on their way leaves together after them.

    `heard(channel, count, error)` is called when `count` more records were appended, or were not.
    """

    def __init__(
        self,
        name: str,
        producer: IdempotentProducer,
        heard: Callable[[Channel, int, KafkaError | None], None],
    ) -> None:
        self.name = name
        self.enqueued = 0
        self.acked = 0
        self.missing_topic = ""
        self.topic = ""
        self._producer = producer
        self._heard = heard
        self._held: deque[OutRecord] = deque()
        self._flying = 0
        self._known = not name.startswith(_QUEUE)
        self._loop = asyncio.get_running_loop()
        # The order matters in the channels that go to one partition; the others repeat everything.
        self._keyed = name in KEYED_CHANNELS
        self._in_order_until_s = math.inf if self._keyed else -math.inf
        self._looking: asyncio.Task[None] | None = None

    def add(self, record: OutRecord) -> None:
        """Queue a record; `flush` lets it go."""
        self.enqueued += 1
        self._held.append(record)

    def flush(self) -> None:
        """Send what is queued, unless earlier records are still on their way."""
        held = self._held
        if self._flying or not held:
            return
        if not self._known:
            if self._looking is None:
                self._looking = asyncio.create_task(self._look(held[0].topic))
            return
        self.topic = held[0].topic
        in_order = self._loop.time() < self._in_order_until_s
        count = min(len(held), BATCH_RECORDS_MAX if in_order else FIRST_RECORDS)
        send, unheard = self._producer.send, self._each if self._keyed else None
        try:
            for _ in range(count - 1):
                send(held.popleft(), unheard)
                self._flying += 1
            self._flying += 1
            send(held.popleft(), unheard or self._all)
        except OutcomeUnknownError:
            self._heard(self, 0, KafkaError(KafkaError._FATAL))

    def _each(self, error: KafkaError | None, _message: Message) -> None:
        self._acked(1, error)

    def _all(self, error: KafkaError | None, _message: Message) -> None:
        self._acked(self._flying, error)

    def _acked(self, count: int, error: KafkaError | None) -> None:
        self._flying -= count
        if error is None:
            self.acked += count
        self._heard(self, count, error)
        if self._flying == 0:
            if error is None:
                until_s = self._loop.time() + _KNOWN_S
                self._in_order_until_s = max(self._in_order_until_s, until_s)
            self.flush()

    async def _look(self, topic: str) -> None:
        """A queue's topic may be made while we wait for it; nothing overtakes meanwhile."""
        while not await self._producer.knows(topic):
            self.missing_topic = topic
            await asyncio.sleep(_TOPIC_RETRY_S)
        self.missing_topic = ""
        self._known = True
        self.flush()

    def close(self) -> None:
        """Drop what has not left."""
        self._held.clear()
        if self._looking is not None:
            self._looking.cancel()


class Outputs:
    """All channels of one partition.

    `marks`: by channel, the sequence of some record that its output partition already has (its
    tail): all up to it are there, so they are not sent again. `failed` is called once, with the
    first error; `moved` after acknowledgements.
    """

    def __init__(
        self,
        encoder: Encoder,
        producers: Mapping[str, IdempotentProducer],
        marks: Mapping[str, Sequence],
        failed: Callable[[OutcomeUnknownError], None],
        moved: Callable[[], None],
    ) -> None:
        self._encoder = encoder
        self._producers = producers
        self._marks = dict(marks)
        self._failed = failed
        self._moved = moved
        self._channels: dict[str, Channel] = {}
        self._waiters: list[tuple[dict[str, int], asyncio.Future[None]]] = []
        self._closed = False
        self._settling = False
        self.unacked = 0
        self.sent = 0
        self.skipped = 0

    def add(self, outputs: Iterable[Output]) -> None:
        """Queue outputs of the fold, in order; the next `flush` lets them go."""
        channels, record = self._channels, self._encoder.record
        sent = 0
        for output in outputs:
            name = output.action.channel
            if self._marks and self._is_repeat(name, output.sequence):
                self.skipped += 1
                continue
            if self._closed:
                continue
            channel = channels.get(name)
            if channel is None:
                producer = self._producers[lane_of(name)]
                channel = channels[name] = Channel(name, producer, self._heard)
            channel.add(record(output))
            sent += 1
        self.unacked += sent
        self.sent += sent

    def flush(self) -> None:
        """Let go what was added: after a slice of events, so that their outputs share requests."""
        for channel in self._channels.values():
            channel.flush()

    def _is_repeat(self, channel: str, sequence: Sequence) -> bool:
        mark = self._marks.get(channel)
        if mark is None:
            return False
        if sequence[:2] <= mark[:2]:
            return True
        del self._marks[channel]
        return False

    def _heard(self, channel: Channel, count: int, error: KafkaError | None) -> None:
        if self._closed:
            return
        if error is not None:
            self._fail(channel, write_lost(f"output to {channel.name}", channel.topic, error))
            return
        self.unacked -= count
        if not self._settling:  # once for all that were acknowledged together
            self._settling = True
            asyncio.get_running_loop().call_soon(self._settle)

    def _settle(self) -> None:
        self._settling = False
        if not self._closed:
            self._release()
            self._moved()

    def _fail(self, channel: Channel, error: OutcomeUnknownError) -> None:
        # After a delivery failed for good, the producer's sequence numbers are spoilt.
        self._producers[lane_of(channel.name)].spoilt = True
        if not self._closed:
            self.close_soon()
            self._failed(error)

    def queued(self) -> dict[str, int]:
        """How many records each channel has taken so far: what a checkpoint has to wait for."""
        return {name: channel.enqueued for name, channel in self._channels.items()}

    async def acknowledged(self, queued: dict[str, int]) -> None:
        """Wait until all that `queued` counts is acknowledged."""
        if not self._reached(queued):
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append((queued, waiter))
            await waiter

    def _reached(self, queued: dict[str, int]) -> bool:
        return all(self._channels[name].acked >= count for name, count in queued.items())

    def _release(self) -> None:
        for queued, waiter in self._waiters:
            if not waiter.done() and self._reached(queued):
                waiter.set_result(None)
        self._waiters = [entry for entry in self._waiters if not entry[1].done()]

    @property
    def missing_topics(self) -> tuple[str, ...]:
        """Topics that outputs wait for: they do not exist yet."""
        return tuple(c.missing_topic for c in self._channels.values() if c.missing_topic)

    def close_soon(self) -> None:
        """Send nothing more: after a failure only a rebuild from the checkpoint may."""
        self._closed = True
        for channel in self._channels.values():
            channel.close()

    async def close(self) -> None:
        """Send nothing more, and give the producers back."""
        self.close_soon()
        for _, waiter in self._waiters:
            waiter.cancel()
        for producer in self._producers.values():
            await producer.release()
