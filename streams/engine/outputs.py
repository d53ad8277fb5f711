"""Outputs of one partition leave here: in order, one batch in flight per output partition.

Why so: a record of a channel may be appended only when every smaller sequence of that channel is in
its log. So first occurrences are in order and without gaps, whatever a producer does with its queue
after an error and however many former owners still write; readers drop repeats by the high-water
mark.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Final

from aiokafka.errors import KafkaTimeoutError, UnknownTopicOrPartitionError

from dalsegno.streams.core.actions import Output
from dalsegno.streams.core.sequence import Sequence
from dalsegno.streams.engine.encoding import KEYED_CHANNELS, Encoder, OutRecord
from dalsegno.streams.engine.errors import OutcomeUnknownError
from dalsegno.streams.engine.producers import IdempotentProducer

FAST_LANE: Final = "fast"
RECORD_LANE: Final = "record"
BATCH_RECORDS_MAX: Final = 4_000
_TOPIC_RETRY_S: Final = 1.0


def lane_of(channel: str) -> str:
    """Which producer a channel uses."""
    return FAST_LANE if channel.startswith("queue.") or channel == "control" else RECORD_LANE


class Channel:
    """The queue of one output channel, and the one batch of it that is in flight."""

    def __init__(self, name: str, producer: IdempotentProducer) -> None:
        self.name = name
        self.enqueued = 0
        self.acked = 0
        self.missing_topic = ""
        self._producer = producer
        self._queue: deque[OutRecord] = deque()
        self._keyed = name in KEYED_CHANNELS

    @property
    def waiting(self) -> bool:
        """Whether anything is left to send."""
        return bool(self._queue)

    def add(self, record: OutRecord) -> None:
        """Queue a record."""
        self._queue.append(record)
        self.enqueued += 1

    def clear(self) -> None:
        """Drop what has not left."""
        self._queue.clear()

    async def send_next(self) -> None:
        """Send one batch per output partition and wait for every acknowledgement."""
        batch = list(islice(self._queue, BATCH_RECORDS_MAX))
        by_place: dict[tuple[str, int], list[OutRecord]] = {}
        for record in batch:
            by_place.setdefault(record[:2], []).append(record)
        taken = await asyncio.gather(*map(self._send, by_place.values()))
        if len(by_place) == 1:
            done = taken[0]
        else:
            # A keyed channel: what did not fit goes out at once, so that the queue moves as a
            # whole.
            rests = [
                records[count:]
                for records, count in zip(by_place.values(), taken, strict=True)
                if count < len(records)
            ]
            for rest in rests:
                while rest:
                    rest = rest[await self._send(rest) :]  # noqa: PLW2901 - consumed piece by piece
            done = len(batch)
        if self._queue:  # else it was cleared meanwhile: nothing of it counts any more
            for _ in range(done):
                self._queue.popleft()
        self.acked += done

    async def _send(self, records: list[OutRecord]) -> int:
        while True:
            try:
                ack, taken = await self._producer.send(records)
            except KafkaTimeoutError:
                continue  # not taken yet: partitions that share an output partition wait their turn
            except UnknownTopicOrPartitionError:
                # Nothing was sent. A queue's topic may be made while we wait; nothing overtakes.
                self.missing_topic = records[0].topic
                await asyncio.sleep(_TOPIC_RETRY_S)
                continue
            self.missing_topic = ""
            await ack
            return taken


class Outputs:
    """All channels of one partition.

    `marks`: by channel, the sequence of some record that its output partition already has (its
    tail): all up to it are there, so they are not sent again. `failed` is called once, with the
    first error; `moved` after every acknowledgement.
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
        self._pumps: dict[str, asyncio.Task[None]] = {}
        self._waiters: list[tuple[dict[str, int], asyncio.Future[None]]] = []
        self._closed = False
        self.unacked = 0
        self.sent = 0
        self.skipped = 0

    def add(self, outputs: Iterable[Output]) -> None:
        """Queue the outputs of one event, in order; they leave at once."""
        for output in outputs:
            name = output.action.channel
            if self._marks and self._is_repeat(name, output.sequence):
                self.skipped += 1
                continue
            channel = self._channels.get(name)
            if channel is None:
                channel = self._channels[name] = Channel(name, self._producers[lane_of(name)])
            channel.add(self._encoder.record(output))
            self.unacked += 1
            self.sent += 1
            if name not in self._pumps:
                self._pumps[name] = asyncio.create_task(self._pump(channel))

    def _is_repeat(self, channel: str, sequence: Sequence) -> bool:
        mark = self._marks.get(channel)
        if mark is None:
            return False
        if sequence[:2] <= mark[:2]:
            return True
        del self._marks[channel]
        return False

    async def _pump(self, channel: Channel) -> None:
        try:
            while channel.waiting and not self._closed:
                before = channel.acked
                await channel.send_next()
                self.unacked -= channel.acked - before
                self._release()
                self._moved()
        except Exception as error:  # noqa: BLE001 - the pump's boundary: any failure ends the task
            # After a delivery failed for good, the producer's sequence numbers are spoilt.
            self._producers[lane_of(channel.name)].spoilt = True
            if not self._closed:
                self.close_soon()
                self._failed(OutcomeUnknownError(f"output to {channel.name}: {error!r}"))
        finally:
            self._pumps.pop(channel.name, None)

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
            channel.clear()

    async def close(self) -> None:
        """Stop the pumps and give the producers back."""
        self.close_soon()
        pumps = [task for task in self._pumps.values() if task is not asyncio.current_task()]
        for task in pumps:
            task.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        for _, waiter in self._waiters:
            waiter.cancel()
        for producer in self._producers.values():
            await producer.release()
