"""Takes handoffs from one queue: each at most once per epoch, and only what there is room for.

1. Poll no more than there are free slots; reserve them.
2. Drop repeats: by the partition's mark, and by (run, step, epoch).
3. Commit offset and mark synchronously. A failed commit starts nothing; one of unknown outcome is
   read back first.
4. Hand on what the commit covers.

Whatever happened to the assignment between 1 and 3 throws the batch away: positions and marks are
then read again from the group before anything more is taken.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from dalsegno.schemas import codec
from dalsegno.schemas.errors import DecodeError
from dalsegno.schemas.headers import SEQUENCE, TRACEPARENT
from dalsegno.schemas.liveness import Mark
from dalsegno.schemas.outputs import Handoff
from dalsegno.streams.client.attempt import Attempt
from dalsegno.streams.client.clocks import Clocks
from dalsegno.streams.client.commits import Commits, Fenced
from dalsegno.streams.client.config import ClientConfig, KafkaConfig
from dalsegno.streams.client.holding import Holding
from dalsegno.streams.client.marks import NOWHERE, Place, Seen, parse_mark
from dalsegno.streams.client.record_headers import HeaderNamesError, headers_of
from dalsegno.streams.client.standstill import Standstill
from dalsegno.streams.core.sequence import Sequence as HandoffSequence

_LOG = logging.getLogger("dalsegno.worker")
_BATCH_MAX = 500
_POLL_S = 0.1
_SEQUENCE_BYTES = 20
_FULL_WAIT_S = 2.0  # without a free slot for so long, polling goes on with the partitions paused


class Message(Protocol):
    """What is used of confluent-kafka's message."""

    def error(self) -> KafkaError | None: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def value(self) -> bytes: ...
    def headers(self) -> list[tuple[str, bytes]] | None: ...


class Taken(msgspec.Struct, frozen=True):
    """A handoff that the group now counts as taken by this worker."""

    handoff: Handoff
    partition: int
    trace: str


class QueueConsumer:
    """One queue's static group member and its thread. `take`, `fenced` and `broken` (anything
    else that ends it) are called in that thread.
    """

    def __init__(
        self,
        config: ClientConfig,
        settings: KafkaConfig,
        queue: str,
        *,
        holding: Holding[Attempt],
        seen: Seen,
        take: Callable[[Sequence[Taken]], None],
        fenced: Callable[[str], None],
        broken: Callable[[str], None],
        clocks: Clocks,
        factory: Callable[[KafkaConfig], Consumer] = Consumer,
    ) -> None:
        self.queue = queue
        self._topic = config.topics.queue(queue)
        self._timeout_s = config.request_timeout_ms / 1_000
        self._holding = holding
        self._seen = seen
        self._take = take
        self._fenced = fenced
        self._broken = broken
        self._clocks = clocks
        self._consumer = factory(settings)
        self._standstill = Standstill(self._consumer, self._topic)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._commits: Commits | None = None
        self._not_before_s = 0.0
        self._generation = 0
        self._assigned: set[int] = set()
        self._marks: dict[int, Place] = {}
        self._next: dict[int, int] = {}  # empty after each positioning: a log may begin anywhere
        self._unread = False
        self._paused = False
        self._drained = False  # nothing fetched is left to be handed over

    def marks(self, partitions: int) -> list[Mark]:
        """The group's marks of every partition, before joining it. Raises `KafkaException`."""
        asked = [TopicPartition(self._topic, number) for number in range(partitions)]
        found = self._consumer.committed(asked, timeout=self._timeout_s)
        marks = [parse_mark(place.metadata, self.queue, place.partition) for place in found]
        return [mark for mark in marks if mark is not None]

    def start(self, worker: str, incarnation: int, not_before_s: float) -> None:
        """Join the group; take nothing before `not_before_s` on the lease clock."""
        self._commits = Commits(self._consumer, self._topic, worker, incarnation, self._timeout_s)
        self._not_before_s = not_before_s
        self._consumer.subscribe(
            [self._topic],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_revoke,
        )
        self._thread = threading.Thread(
            target=self._run, name=f"{worker}-{self.queue}", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Take nothing more. The group keeps the place until the session ends: a restart has it
        back.
        """
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._consumer.close()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                if self._holding.wait_free(_FULL_WAIT_S):
                    self._round()
                else:
                    self._wait_for_room()
        except Fenced as error:
            self._fenced(str(error))
        except Exception as error:  # noqa: BLE001 - the thread's boundary: somebody has to be told
            _LOG.exception("queue %s: nothing more is taken", self.queue)
            self._broken(f"queue {self.queue}: {error!r}")

    def _wait_for_room(self) -> None:
        """Polling goes on, or the group would take this member for dead.

        A paused partition does not go on where it stopped: what was fetched may be skipped. So its
        position is read from the group again, as after an assignment.
        """
        if not self._unread:
            self._forget_positions()
        self._keep_alive(0)

    def _keep_alive(self, timeout_s: float) -> None:
        """Poll while nothing may be taken; what comes all the same is read again."""
        if self._check(self._consumer.poll(timeout_s)):
            self._forget_positions()

    def _round(self) -> None:
        """One batch, of no more than there are free slots."""
        if self._unread and not self._read_marks():
            self._keep_alive(_POLL_S)
            return
        self._resume()
        if self._drained and self._standstill.found(self._clocks.lease_s()):
            self._forget_positions()
            return
        first = self._consumer.poll(_POLL_S)
        self._drained = first is None
        if first is None or not self._check(first):
            return
        # What was assigned during the poll was assigned before the message that ended it.
        generation = self._generation
        if self._unread:
            return
        slots, taken = self._holding.reserve(_BATCH_MAX), 0
        try:
            rest = self._consumer.consume(slots - 1, 0) if slots > 1 else []
            self._drained = len(rest) < slots - 1
            messages = [first, *(message for message in rest if self._check(message))]
            if generation != self._generation:
                self._forget_positions()
                return
            if self._stopping.is_set():
                return
            # Another queue may have taken the last slot meanwhile: then this message is read again.
            if slots and self._without_gap(messages):
                taken = self._take_batch(messages)
            else:
                self._forget_positions()
        finally:
            self._holding.give_back(slots - taken)

    def _without_gap(self, messages: Sequence[Message]) -> bool:
        """Whether each partition goes on right behind what was taken: a commit skips nothing."""
        for message in messages:
            partition, offset = message.partition(), message.offset()
            expected = self._next.get(partition)
            if expected is not None and offset != expected:
                _LOG.warning(
                    "%s[%s]: offset %s after %s", self._topic, partition, offset, expected - 1
                )
                return False
            self._next[partition] = offset + 1
            self._standstill.heard(partition, offset, self._clocks.lease_s())
        return True

    def _take_batch(self, messages: Sequence[Message]) -> int:
        """Commit, then hand on. Returns how many slots are in use from now on."""
        fresh, places = self._sift(messages)
        committed = self._commit(places, messages)
        taken = [item for item in fresh if item.partition in committed]
        for item in taken:
            self._seen.add(item.handoff.run_id, item.handoff.step, item.handoff.epoch)
        if taken:
            self._take(taken)
        return len(taken)

    def _check(self, message: Message | None) -> bool:
        """Whether it is a handoff. Raises `Fenced` when the membership is over for good."""
        if message is None:
            return False
        error = message.error()
        if error is None:
            return True
        if error.code() == KafkaError._FATAL:
            raise Fenced(error.str())
        _LOG.warning("queue %s: %s", self.queue, error)
        return False

    def _sift(self, messages: Sequence[Message]) -> tuple[list[Taken], dict[int, Place]]:
        """What is new, in order, and the marks that taking it gives."""
        fresh: list[Taken] = []
        places: dict[int, Place] = {}
        batch: set[tuple[str, str, int]] = set()
        for message in messages:
            partition = message.partition()
            headers = self._headers(message)
            mark = places.get(partition) or self._marks.get(partition, NOWHERE)
            place = _place(headers.get(SEQUENCE)) if headers else None
            places[partition] = mark if place is None else max(mark, place)
            if headers is None:
                continue
            if place is not None and place <= mark:
                continue
            handoff = self._decode(message)
            if handoff is None:
                continue
            step = (handoff.run_id, handoff.step, handoff.epoch)
            if step in batch or not self._seen.is_new(*step):
                continue
            batch.add(step)
            fresh.append(
                Taken(handoff, partition, headers.get(TRACEPARENT, b"").decode("ascii", "replace"))
            )
        return fresh, places

    def _headers(self, message: Message) -> dict[str, bytes] | None:
        """None for a record that no engine has put there."""
        try:
            return dict(headers_of(message))
        except HeaderNamesError as error:
            self._unreadable(error)
            return None

    def _decode(self, message: Message) -> Handoff | None:
        """None for bytes that are no handoff: nobody can start them, their epoch expires by
        itself.
        """
        try:
            record = codec.decode(message.value() or b"")
        except DecodeError as error:
            self._unreadable(f"{self._topic}[{message.partition()}]@{message.offset()}: {error}")
        else:
            if isinstance(record, Handoff):
                return record
            self._unreadable(
                f"{self._topic}[{message.partition()}]@{message.offset()}: "
                f"a {type(record).__name__}"
            )
        return None

    def _unreadable(self, error: object) -> None:
        _LOG.error("not a handoff of ours: %s", error)

    def _commit(self, places: dict[int, Place], messages: Sequence[Message]) -> set[int]:
        """The partitions that the group now counts as taken up to these messages."""
        assert self._commits is not None
        ends: dict[int, int] = {}
        for message in messages:
            ends[message.partition()] = message.offset() + 1
        committed = self._commits.commit(ends, places, self._stopping.is_set)
        for partition in committed:
            self._marks[partition] = places[partition]
        if len(committed) < len(ends):
            self._forget_positions()
        return committed

    def _on_assign(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._generation += 1
        self._assigned = {place.partition for place in partitions}
        self._forget_positions(paused=False)
        # At once from where the group is: librdkafka takes up to a second to move a position that
        # it has already begun to fetch from.
        if self._assigned and not self._read_marks():
            self._consumer.assign(partitions)
            self._pause()

    def _on_revoke(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self._generation += 1
        self._assigned = set()
        self._marks.clear()

    def _forget_positions(self, *, paused: bool = True) -> None:
        """Positions and marks are read from the group before anything more is taken."""
        self._marks.clear()
        self._next.clear()
        self._standstill.forget()
        self._unread = bool(self._assigned)
        self._paused = False
        if paused:
            self._pause()

    def _read_marks(self) -> bool:
        """Position every assigned partition where the group is, with its mark. False: try again."""
        if self._clocks.lease_s() < self._not_before_s:
            return False
        asked = [TopicPartition(self._topic, number) for number in sorted(self._assigned)]
        try:
            found = self._consumer.committed(asked, timeout=self._timeout_s)
        except KafkaException as error:
            _LOG.warning("queue %s: marks cannot be read, trying again: %s", self.queue, error)
            return False
        if any(place.error is not None for place in found):
            return False
        starts = []
        for place in found:
            mark = parse_mark(place.metadata, self.queue, place.partition)
            self._marks[place.partition] = (
                NOWHERE if mark is None else Place(mark.offset, mark.index)
            )
            start = place.offset if place.offset >= 0 else OFFSET_BEGINNING
            starts.append(TopicPartition(self._topic, place.partition, start))
        self._consumer.assign(starts)
        offsets = {start.partition: start.offset for start in starts}
        self._standstill.positioned(offsets, self._clocks.lease_s())
        self._unread = False
        return True

    def _pause(self) -> None:
        if not self._paused and self._assigned:
            self._consumer.pause([TopicPartition(self._topic, number) for number in self._assigned])
            self._paused = True

    def _resume(self) -> None:
        if self._paused and self._assigned and not self._unread:
            self._consumer.resume(
                [TopicPartition(self._topic, number) for number in self._assigned]
            )
            self._paused = False


def _place(header: bytes | None) -> Place | None:
    """The sequence's place; None where a handoff has none (it then counts by run, step and
    epoch).
    """
    if header is None or len(header) != _SEQUENCE_BYTES:
        return None
    sequence = HandoffSequence.unpack(header)
    return Place(sequence.offset, sequence.index)
