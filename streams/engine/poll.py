"""Fetches records on a thread of its own, from exactly the positions that are asked for.

On librdkafka, by `assign`: the group's membership and its offsets stay with Faust's client. What a
partition has ready is held up by nobody: one that is not taken from is parked when it is full.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog
from aiokafka import TopicPartition
from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Assigned

from dalsegno.streams.engine.errors import FetchRefusedError, OffsetGoneError
from dalsegno.streams.engine.fold import Clock
from dalsegno.streams.engine.header_names import LenientHeaders
from dalsegno.streams.engine.lanes import Fetched, Lane
from dalsegno.streams.engine.raw import RawEvent, raw_event
from dalsegno.streams.engine.security import librdkafka_options
from dalsegno.streams.engine.settings import EngineSettings

log = structlog.get_logger(__name__)

_WAIT_S: Final = 0.05
_CHUNK: Final = 2_000
_AGAIN_S: Final = 0.2
"""After an error of one partition, before it is fetched again; new clients wait as long."""

_CLOSE_S: Final = 2.0
_STANDSTILL_S: Final = 10.0
"""librdkafka was seen to leave a partition unfetched after a broker had been cut off."""

_GONE: Final = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION})
_REFUSED: Final = frozenset(
    {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}
)


@dataclass(slots=True)
class Polled:
    """What a poll found. `errors`: by partition; such a partition is fetched no further."""

    fetched: dict[TopicPartition, Fetched] = field(default_factory=dict)
    errors: dict[TopicPartition, Exception] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.fetched or self.errors)


class Poller:
    """The records of one engine's partitions. `arrived` is called on the loop that made it."""

    def __init__(self, settings: EngineSettings, arrived: Callable[[], None], clock: Clock) -> None:
        self._settings = settings
        self._arrived = arrived
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._lanes: dict[TopicPartition, Lane] = {}  # replaced whole, never changed
        self._changed = threading.Event()
        self._told = False
        self._stopping = False
        self._silent: dict[TopicPartition, tuple[Lane, int, float]] = {}
        self._thread = threading.Thread(target=self._run, name="records", daemon=True)
        self._thread.start()

    def take(
        self,
        wanted: Mapping[TopicPartition, int],
        records_max: int,
        kept: Callable[[TopicPartition], bool],
    ) -> Polled:
        """What is there of the wanted positions. Partitions that are neither wanted nor `kept` are
        read no further.
        """
        self._told = False
        found, lanes = Polled(), self._lanes
        opened = {
            place: Lane(place, position)
            for place, position in wanted.items()
            if (lane := lanes.get(place)) is None or lane.position != position
        }
        closed = [place for place in lanes if place not in wanted and not kept(place)]
        if opened or closed:
            self._lanes = {
                place: lane for place, lane in (lanes | opened).items() if place not in closed
            }
            self._changed.set()
        for place in wanted:
            lane = self._lanes[place]
            fetched = lane.take(records_max)
            if fetched is not None:
                found.fetched[place] = fetched
            elif lane.error is not None:
                found.errors[place] = lane.error
                self._lanes = {each: lane for each, lane in self._lanes.items() if each != place}
        return found

    def ends(self, ends: Mapping[TopicPartition, int]) -> None:
        """Where the logs end, as somebody else was told: a partition of which nothing comes
        although there is more is read anew.
        """
        now_s, silent = self._clock(), {}
        for place, end in ends.items():
            lane = self._lanes.get(place)
            if lane is None or lane.fetched >= end or lane.full(parked=True):
                continue
            before = self._silent.get(place)
            if before is None or before[:2] != (lane, lane.fetched):
                silent[place] = (lane, lane.fetched, now_s)
            elif now_s - before[2] < _STANDSTILL_S:
                silent[place] = before
            else:
                log.warning("nothing is fetched, read anew", place=place, position=lane.position)
                self._lanes = self._lanes | {place: Lane(place, lane.position)}
                self._changed.set()
        self._silent = silent

    async def close(self) -> None:
        """Read nothing more."""
        self._stopping = True
        self._changed.set()
        await asyncio.to_thread(self._thread.join, _CLOSE_S)

    # The thread.

    def _run(self) -> None:
        lenient = LenientHeaders(self._settings)
        while not self._stopping:
            try:
                consumer = self._connect()
                try:
                    Reading(consumer, lenient, self._clock).run(self)
                finally:
                    consumer.close()
            except Exception as error:  # noqa: BLE001 - the thread's boundary: a new client reads on
                log.warning("records not read, trying again", error=repr(error))
                self._changed.wait(_AGAIN_S)

    def _connect(self) -> Consumer:
        return Consumer(
            {
                **librdkafka_options(self._settings),
                "client.id": f"{self._settings.owner}-records",
                "group.id": f"{self._settings.group}-records",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "check.crcs": True,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": self._settings.fetch_wait_ms,
                "fetch.queue.backoff.ms": 5,
                "fetch.error.backoff.ms": 50,
                "fetch.message.max.bytes": 4 << 20,
                "queued.min.messages": 2_000,
                "queued.max.messages.kbytes": 16_384,
                "socket.timeout.ms": max(self._settings.request_timeout_ms, 1_000),
                "topic.metadata.refresh.interval.ms": self._settings.metadata_age_max_ms,
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 1_000,
            }
        )

    @property
    def stopping(self) -> bool:
        """Whether the thread has to end."""
        return self._stopping

    @property
    def lanes(self) -> Mapping[TopicPartition, Lane]:
        """What has to be read now."""
        return self._lanes

    def wait_for_lanes(self) -> None:
        """Until there may be something to read."""
        self._changed.wait(_WAIT_S)
        self._changed.clear()

    def tell(self) -> None:
        """Something has come: once for all that comes before it is looked at."""
        if not self._told:
            self._told = True
            self._loop.call_soon_threadsafe(self._arrived)


class Reading:
    """What one client reads, on the poller's thread."""

    def __init__(self, consumer: Consumer, lenient: LenientHeaders, clock: Clock) -> None:
        self._consumer = consumer
        self._lenient = lenient
        self._clock = clock
        self._assigned: dict[TopicPartition, Lane] = {}
        self._parked: set[Lane] = set()

    def run(self, poller: Poller) -> None:
        """Until the poller stops. Raises `KafkaException` when a new client is needed."""
        while not poller.stopping:
            self._assign(poller.lanes)
            if not self._assigned:
                poller.wait_for_lanes()
                continue
            first = self._consumer.poll(_WAIT_S)
            if first is not None and self._sort([first, *self._consumer.consume(_CHUNK, 0.0)]):
                poller.tell()

    def _assign(self, lanes: Mapping[TopicPartition, Lane]) -> None:
        for place, lane in list(self._assigned.items()):
            if lanes.get(place) is not lane:
                self._drop(lane)
            elif lane.full(parked=False):
                self._drop(lane)
                self._parked.add(lane)
        new = [
            lane
            for place, lane in lanes.items()
            if place not in self._assigned and lane.error is None and self._may_fetch(lane)
        ]
        if new:
            self._consumer.incremental_assign(
                [Assigned(lane.place.topic, lane.place.partition, lane.fetched) for lane in new]
            )
            for lane in new:
                lane.assigned()
                self._parked.discard(lane)
                self._assigned[lane.place] = lane
            self._parked.intersection_update(lanes.values())

    def _may_fetch(self, lane: Lane) -> bool:
        return not lane.full(parked=lane in self._parked) and self._clock() >= lane.not_before_s

    def _drop(self, lane: Lane) -> None:
        del self._assigned[lane.place]
        self._consumer.incremental_unassign([Assigned(lane.place.topic, lane.place.partition)])

    def _again(self, lane: Lane, pause_s: float = 0.0) -> None:
        """What comes is not what follows: fetch it anew, from where it should go on."""
        lane.not_before_s = self._clock() + pause_s
        self._drop(lane)

    def _sort(self, messages: Sequence[Message]) -> bool:
        """By lane, in order. Whether there is anything to hand out."""
        found: dict[Lane, list[RawEvent]] = {}
        told = False
        for message in messages:
            place = TopicPartition(message.topic() or "", message.partition() or 0)
            lane, error, offset = self._assigned.get(place), message.error(), message.offset() or 0
            if error is not None and error.fatal():
                raise KafkaException(error)
            if lane is None:  # dropped a moment ago; or an error of no partition: it is tried again
                continue
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                told |= self._failed(lane, error)
            elif not lane.follows(offset):
                if offset > lane.fetched:
                    self._again(lane)
            elif error is None:
                found.setdefault(lane, []).append(raw_event(message, self._lenient))
                lane.heard(offset + 1)
            elif offset > lane.fetched:  # markers stand between the last record and the end
                lane.heard(offset)
                found.setdefault(lane, [])
        for lane, records in found.items():
            lane.put(records, self._end(lane))
        return told or bool(found)

    def _end(self, lane: Lane) -> int:
        asked = Assigned(lane.place.topic, lane.place.partition)
        known = self._consumer.get_watermark_offsets(asked, cached=True)
        return known[1] if known is not None else 0

    def _failed(self, lane: Lane, error: KafkaError) -> bool:
        """Whether somebody has to be told."""
        where = f"{lane.place.topic}[{lane.place.partition}] at {lane.fetched}: {error.str()}"
        self._again(lane, _AGAIN_S)
        if error.code() in _GONE:
            lane.error = OffsetGoneError(where)
        elif error.code() in _REFUSED:
            lane.error = FetchRefusedError(where)
        else:
            log.warning("not fetched, trying again", where=where, error=error.name())
        return lane.error is not None
