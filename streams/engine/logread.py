"""Reads a topic partition as it stands, from a start to its end. Blocking, for tools and tests."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from dalsegno.streams.engine.errors import RestoreError
from dalsegno.streams.engine.security import librdkafka_options
from dalsegno.streams.engine.settings import EngineSettings

_CHUNK_RECORDS: Final = 5_000
_POLL_S: Final = 0.05
_ASK_TIMEOUT_S: Final = 10.0
_PATIENCE_POLLS: Final = 600
_BETWEEN_LEADERS: Final = frozenset(
    {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE}
)


class LogReader:
    """One consumer for many reads. Committed records only; joins no group."""

    def __init__(self, settings: EngineSettings) -> None:
        self._consumer = Consumer(
            {
                **librdkafka_options(settings),
                "group.id": f"{settings.group}-read",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 20,
                "fetch.queue.backoff.ms": 5,
            }
        )

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """First offset, and the one after the last. Raises `KafkaException`.

        A partition between two leaders, or one that was made just now, is asked again for a while.
        """
        place = TopicPartition(topic, partition)
        until_s = time.monotonic() + _ASK_TIMEOUT_S
        while True:
            try:
                low, high = self._consumer.get_watermark_offsets(place, timeout=_ASK_TIMEOUT_S)
            except KafkaException as error:
                if error.args[0].code() not in _BETWEEN_LEADERS or time.monotonic() > until_s:
                    raise
                time.sleep(_POLL_S)
            else:
                return low, high

    def read(
        self, topic: str, partition: int, start: int | None = None, end: int | None = None
    ) -> Iterator[Message]:
        """Records from `start` (the log's first) up to `end` (exclusive; the log's end as it is
        now).

        Raises `RestoreError` if the brokers give nothing for too long, `KafkaException` for the
        rest.
        """
        low, high = self.bounds(topic, partition)
        first, last = low if start is None else start, high if end is None else min(end, high)
        if first >= last:
            return
        self._consumer.assign([TopicPartition(topic, partition, first)])
        patience = _PATIENCE_POLLS
        while patience:
            messages = self._consumer.consume(_CHUNK_RECORDS, _POLL_S)
            patience = _PATIENCE_POLLS if messages else patience - 1
            for message in messages:
                error = message.error()
                if error is None:
                    if (message.offset() or 0) >= last:
                        return
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    return
                elif error.fatal() or error.code() == KafkaError._AUTO_OFFSET_RESET:
                    raise KafkaException(error)
        raise RestoreError(f"{topic}[{partition}]: no answer while reading {first} to {last}")

    def close(self) -> None:
        """Disconnect."""
        self._consumer.close()
