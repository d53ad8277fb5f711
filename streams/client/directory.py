"""Where the engines are: their claims in the owners topic, and the end of a partition's events."""

from __future__ import annotations

import threading
import time
from typing import Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from dalsegno.schemas import codec
from dalsegno.schemas.outputs import Claim
from dalsegno.streams.client.config import ClientConfig
from dalsegno.streams.client.errors import DeliveryFailed, SettingsError
from dalsegno.streams.client.fork import ForkGuard

_BATCH: Final = 500
_POLL_S: Final = 0.5
_NO_TOPIC: Final = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
)


class Directory:
    """Thread-safe. Owns one consumer, made at the first question."""

    def __init__(self, config: ClientConfig, client_id: str) -> None:
        self._config = config
        self._client_id = f"{client_id}-owners"
        self._timeout_s = config.request_timeout_ms / 1_000
        self._lock = threading.Lock()
        self._consumer: Consumer | None = None
        self._guard = ForkGuard()

    def urls(self) -> dict[int, str]:
        """By partition, the base address of the engine that claimed it last, without a slash.

        Reads the topic to its end. Raises `SettingsError` if it does not exist, `DeliveryFailed` if
        no broker answers.
        """
        self._guard.check()
        place = TopicPartition(self._config.topics.owners, 0, OFFSET_BEGINNING)
        with self._lock:
            consumer = self._open()
            consumer.assign([place])
            try:
                return self._read(consumer, place.topic)
            finally:
                consumer.unassign()

    def _read(self, consumer: Consumer, topic: str) -> dict[int, str]:
        found: dict[int, str] = {}
        deadline = time.monotonic() + self._timeout_s
        while time.monotonic() < deadline:
            # `consume` alone would wait its time out for a full batch.
            first = consumer.poll(_POLL_S)
            came = [] if first is None else [first, *consumer.consume(_BATCH - 1, 0.0)]
            for message in came:
                error = message.error()
                if error is None:
                    _take(found, message.value() or b"")
                elif error.code() == KafkaError._PARTITION_EOF:
                    return found
                elif error.code() in _NO_TOPIC or error.fatal():
                    raise _failed(topic, error)
        raise DeliveryFailed(topic, b"", "_TIMED_OUT", "its end was not reached")

    def events_end(self, partition: int) -> int:
        """The offset after the last event of a partition, now. Raises as `urls`."""
        self._guard.check()
        with self._lock:
            return self._end(self._open(), TopicPartition(self._config.topics.events, partition))

    def close(self) -> None:
        """Free the consumer. May be repeated."""
        if self._guard.forked:
            return
        with self._lock:
            consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _open(self) -> Consumer:
        if self._consumer is None:
            self._consumer = Consumer(
                {
                    **self._config.reader(self._client_id),
                    "enable.partition.eof": True,
                    "isolation.level": "read_committed",
                    # The end is told by a fetch that brings nothing.
                    "fetch.wait.max.ms": 50,
                }
            )
            self._guard.replace(self._consumer)
        return self._consumer

    def _end(self, consumer: Consumer, place: TopicPartition) -> int:
        try:
            _, end = consumer.get_watermark_offsets(place, timeout=self._timeout_s)
        except KafkaException as error:
            raise _failed(place.topic, error.args[0]) from error
        return int(end)


def _take(found: dict[int, str], value: bytes) -> None:
    claim = codec.decode_if(Claim, value)  # beside the layout's record, and tombstones
    if claim is not None and claim.url:
        found[claim.partition] = claim.url.rstrip("/")


def _failed(topic: str, error: KafkaError) -> SettingsError | DeliveryFailed:
    if error.code() in _NO_TOPIC:
        return SettingsError(f"topic {topic!r} does not exist: run `dalsegno topics create`")
    return DeliveryFailed(topic, b"", error.name(), error.str())
