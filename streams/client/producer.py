"""The SDK's producer: idempotent, never drops, pushes back, tells each sender what became of its
record.

Records wait in librdkafka's queue; when that is full, senders that may block wait for room, and
senders on an event loop leave theirs in a second queue, in order, bounded by what a worker holds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as KafkaProducer

from dalsegno.streams.client.config import ClientConfig, KafkaConfig
from dalsegno.streams.client.errors import ClosedError, DeliveryFailed, QueueFull, SettingsError
from dalsegno.streams.client.fork import ForkGuard
from dalsegno.streams.client.refused import Complaints, connect, rights_refusal

_LOG = logging.getLogger("dalsegno.client")
_POLL_S = 0.2  # a wait without deliveries; deliveries end it at once
_REFUSAL_S = 2.0  # by then a broker has refused us, if it does
_ROOM_POLL_S = 0.005  # while records wait for room


class OutRecord(NamedTuple):
    """One Kafka record with its explicit partition."""

    topic: str
    partition: int
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...] = ()


class Receipt(NamedTuple):
    """Where a record stands. `at_ms` is the broker's append time, in Unix milliseconds."""

    topic: str
    partition: int
    offset: int
    at_ms: int


class Done(Protocol):
    """Called once per record, in the producer's thread: exactly one of the two is given. Must not
    block.
    """

    def __call__(self, receipt: Receipt | None, error: DeliveryFailed | None) -> None: ...


class _Message(Protocol):
    def topic(self) -> str: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def timestamp(self) -> tuple[int, int]: ...


class TopicMetadata(Protocol):
    error: KafkaError | None
    partitions: Mapping[int, object]


class ClusterMetadata(Protocol):
    topics: Mapping[str, TopicMetadata]


class KafkaPort(Protocol):
    """What is used of confluent-kafka's producer; tests put a fake in its place."""

    def produce(self, topic: str, **record: object) -> None: ...
    def poll(self, timeout: float) -> int: ...
    def flush(self, timeout: float) -> int: ...
    def purge(self) -> None: ...
    def __len__(self) -> int: ...
    def list_topics(self, topic: str, timeout: float) -> ClusterMetadata: ...


class _Sending:
    """A record on its way: librdkafka calls it with the outcome."""

    __slots__ = ("_done", "_producer", "record")

    def __init__(self, record: OutRecord, done: Done, producer: Producer) -> None:
        self.record = record
        self._done = done
        self._producer = producer

    def __call__(self, error: KafkaError | None, message: _Message) -> None:
        if error is None:
            record = self.record
            self._tell(
                Receipt(record.topic, record.partition, message.offset(), message.timestamp()[1]),
                None,
            )
        else:
            if error.code() == KafkaError._FATAL:
                self._producer.spoil()
            self.fail(error)

    def fail(self, error: KafkaError) -> None:
        record = self.record
        retriable = error.code() not in _HOPELESS
        self._tell(
            None, DeliveryFailed(record.topic, record.key, error.name(), error.str(), retriable)
        )

    def _tell(self, receipt: Receipt | None, error: DeliveryFailed | None) -> None:
        try:
            self._done(receipt, error)
        except Exception:  # noqa: BLE001 - the sender's: its record is neither kept nor sent again
            _LOG.exception("an outcome of run %r was not taken in", self.record.key)


_HOPELESS = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.INVALID_RECORD,
    }
)
"""A topic that is not known is none of these: a broker that is just starting may not know it."""


class Producer:
    """Thread-safe. Owns one thread, which serves delivery reports."""

    def __init__(
        self,
        config: ClientConfig,
        client_id: str,
        *,
        settings: KafkaConfig | None = None,
        factory: Callable[[KafkaConfig], KafkaPort] = KafkaProducer,
    ) -> None:
        self._complaints = Complaints()
        self._config = {
            **config.producer(client_id),
            "error_cb": self._complaints,
            **(settings or {}),
        }
        self._request_s = config.request_timeout_ms / 1_000
        self._factory = factory
        self._kafka = connect(factory, self._config)
        self._guard = ForkGuard(self._kafka)
        self._lock = threading.RLock()
        self._room = threading.Condition(self._lock)
        self._waiting: deque[_Sending] = deque()
        self._spoilt = False
        self._closed = False
        self._closing = threading.Event()
        self._thread = threading.Thread(
            target=self._serve, name=f"{client_id}-producer", daemon=True
        )
        self._thread.start()

    @property
    def unsent(self) -> int:
        """Records that are not acknowledged yet."""
        return len(self._waiting) + len(self._kafka)

    def partition_count(self, topic: str) -> int:
        """Raises `SettingsError` if the topic does not exist or the broker refuses us,
        `DeliveryFailed` if none answers, `ClosedError`.
        """
        self._guard.check()
        self._open()
        found = self._metadata(topic)
        if found.error is not None and (refusal := rights_refusal(found.error, topic)) is not None:
            raise refusal
        if found.error is not None or not found.partitions:
            raise SettingsError(f"topic {topic!r} does not exist: run `dalsegno topics create`")
        return len(found.partitions)

    def _metadata(self, topic: str) -> TopicMetadata:
        """Two tries: a short one, after which a refusal is known, and one that waits."""
        self._complaints.forget()
        failure: KafkaException | None = None
        for timeout_s in (min(_REFUSAL_S, self._request_s), self._request_s):
            try:
                return self._kafka.list_topics(topic, timeout=timeout_s).topics[topic]
            except KafkaException as error:
                # Our thread polls, so what librdkafka had to say has been heard by now.
                if (refusal := self._complaints.refusal(self._config)) is not None:
                    raise refusal from error
                failure = error
        assert failure is not None
        cause = failure.args[0]
        raise DeliveryFailed(topic, b"", cause.name(), cause.str()) from failure

    def send(self, record: OutRecord, done: Done) -> None:
        """Queue a record without blocking; `done` tells the outcome. Raises `ForkedError`,
        `ClosedError`.
        """
        self._guard.check()
        sending = _Sending(record, done, self)
        with self._lock:
            self._open()
            if self._waiting or not self._produce(sending):
                self._waiting.append(sending)

    def send_blocking(self, record: OutRecord, done: Done, timeout_s: float) -> None:
        """As `send`, but waits for room in the queue. Raises `QueueFull` if none came: nothing was
        sent.
        """
        self._guard.check()
        sending = _Sending(record, done, self)
        with self._room:
            self._open()
            if not self._room.wait_for(
                lambda: self._closed or (not self._waiting and self._produce(sending)), timeout_s
            ):
                raise QueueFull(
                    record.topic, record.key, "_QUEUE_FULL", f"no room within {timeout_s:g} s"
                )
            self._open()

    def deliver(self, record: OutRecord, timeout_s: float) -> Receipt:
        """Send and wait for the acknowledgement. Raises `DeliveryFailed` (the outcome is
        unknown).
        """
        return self.deliver_all([record], timeout_s)[0]

    def deliver_all(self, records: list[OutRecord], timeout_s: float) -> list[Receipt]:
        """Send in order and wait for all. Raises the first `DeliveryFailed` once all outcomes are
        known.
        """
        outcomes: list[Receipt | DeliveryFailed | None] = [None] * len(records)
        left = threading.Semaphore(0)

        def done_for(place: int) -> Done:
            def done(receipt: Receipt | None, error: DeliveryFailed | None) -> None:
                outcomes[place] = receipt or error
                left.release()

            return done

        for place, record in enumerate(records):
            self.send_blocking(record, done_for(place), timeout_s)
        receipts: list[Receipt] = []
        for _ in records:
            # librdkafka reports every record by its own timeout; the bound here is a second line.
            left.acquire(timeout=timeout_s + self._request_s)
        for record, outcome in zip(records, outcomes, strict=True):
            if outcome is None:
                raise DeliveryFailed(record.topic, record.key, "_TIMED_OUT", "no delivery report")
            if isinstance(outcome, DeliveryFailed):
                raise outcome
            receipts.append(outcome)
        return receipts

    def spoil(self) -> None:
        """The idempotent producer is of no use after a fatal error: the next record gets a new
        one.
        """
        self._spoilt = True

    def flush(self, timeout_s: float) -> int:
        """Wait until everything is acknowledged or failed. Returns how many records are not."""
        self._guard.check()
        deadline_s = time.monotonic() + timeout_s
        with self._room:
            self._room.wait_for(lambda: not self._waiting, timeout_s)
            kafka = self._kafka
        kafka.flush(max(0.0, deadline_s - time.monotonic()))
        return self.unsent

    def close(self, timeout_s: float) -> int:
        """Flush and stop. Returns how many records were not acknowledged. May be repeated."""
        if self._guard.forked or self._closed:
            return 0
        left = self.flush(timeout_s)
        with self._room:
            self._closed = True
            self._closing.set()
            self._room.notify_all()
        self._thread.join(_POLL_S * 5)
        return left

    def _open(self) -> None:
        if self._closed:
            raise ClosedError("the producer was closed")

    def _produce(self, sending: _Sending) -> bool:
        """False if there is no room. Needs the lock. A hopeless record is reported to its
        sender.
        """
        if self._spoilt:
            self._renew()
        record = sending.record
        try:
            self._kafka.produce(
                record.topic,
                key=record.key,
                value=record.value,
                partition=record.partition,
                headers=list(record.headers) or None,
                on_delivery=sending,
            )
        except BufferError:
            return False
        except KafkaException as error:
            cause = error.args[0]
            if cause.code() == KafkaError._FATAL:
                self._spoilt = True
            sending.fail(cause)
        return True

    def _renew(self) -> None:
        """Replace a spoilt client. What it still held is reported as failed, with unknown
        outcome.
        """
        spoilt = self._kafka
        self._kafka = self._factory(self._config)
        self._guard.replace(self._kafka)
        self._spoilt = False
        spoilt.purge()
        spoilt.flush(0)

    def _serve(self) -> None:
        while not self._closed:
            try:
                self._kafka.poll(_ROOM_POLL_S if self._waiting else _POLL_S)
                with self._room:
                    while self._waiting and self._produce(self._waiting[0]):
                        self._waiting.popleft()
                    self._room.notify_all()
            except Exception:  # noqa: BLE001 - without this thread nobody hears of any record
                _LOG.exception("records were not sent on")
                self._closing.wait(_POLL_S)
