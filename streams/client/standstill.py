"""Finds a partition whose log has more while nothing of it arrives.

librdkafka 2.16 was seen to leave one partition of four unfetched after a broker had been cut off
and came back: no error, a membership in order, and handoffs that expired for ever. So what is
silent is compared with the log's end, and a partition that stands still is positioned anew.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, Protocol

from confluent_kafka import KafkaException, TopicPartition

_LOG = logging.getLogger("dalsegno.worker")
SILENT_S: Final = 10.0
"""Fetching after a change of leader takes less."""

_LOOK_EVERY_S: Final = 2.0  # one question to a broker per look
_ASK_TIMEOUT_S: Final = 1.0
TIMES_MAX: Final = 3
"""A partition that stands still so often in a row needs a new consumer."""


class Ends(Protocol):
    """What is used of confluent-kafka's consumer."""

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float
    ) -> tuple[int, int] | None: ...


class StandstillError(Exception):
    """Positioning anew has not helped: the consumer has to be replaced."""


class Standstill:
    """For one consumer's thread. Times in seconds of any monotonic clock."""

    def __init__(self, consumer: Ends, topic: str) -> None:
        self._consumer = consumer
        self._topic = topic
        self._heard_s: dict[int, float] = {}
        self._next: dict[int, int] = {}
        self._times: dict[int, int] = {}
        self._suspects: set[int] = set()
        self._looked_s = 0.0

    def positioned(self, starts: Mapping[int, int], now_s: float) -> None:
        """Reading begins at these offsets (negative: at the log's first)."""
        self._next = {partition: max(0, start) for partition, start in starts.items()}
        self._heard_s = dict.fromkeys(starts, now_s)
        self._suspects.clear()

    def forget(self) -> None:
        """Nothing is read until `positioned`."""
        self._next.clear()
        self._heard_s.clear()

    def heard(self, partition: int, offset: int, now_s: float) -> None:
        """A message arrived."""
        if partition in self._next:
            self._next[partition] = offset + 1
            self._heard_s[partition] = now_s
            self._times.pop(partition, None)
            self._suspects.discard(partition)

    def found(self, now_s: float) -> bool:
        """Whether the partition that has been silent longest stands still: behind at two looks.

        To be called when nothing fetched is left to be handed over. Asks a broker, at most every
        two seconds and about one partition. Raises `StandstillError` when the same partition has
        been found too often in a row.
        """
        if not self._heard_s or now_s - self._looked_s < _LOOK_EVERY_S:
            return False
        partition = min(self._heard_s, key=self._heard_s.__getitem__)
        if now_s - self._heard_s[partition] < SILENT_S:
            return False
        self._looked_s = now_s
        low, end = self._ends(partition)
        begin = max(low, self._next[partition])
        if end <= begin:
            self._heard_s[partition] = now_s
            self._suspects.discard(partition)
            return False
        if partition not in self._suspects:
            self._suspects.add(partition)  # or its first record in a long time came just now
            return False
        self._times[partition] = self._times.get(partition, 0) + 1
        where = f"{self._topic}[{partition}]: nothing arrives from {begin}, the log ends at {end}"
        if self._times[partition] > TIMES_MAX:
            raise StandstillError(where)
        _LOG.warning("%s; it is read anew", where)
        return True

    def _ends(self, partition: int) -> tuple[int, int]:
        """First and next offset of its log; 0 while no broker answers, which is then the cause."""
        place = TopicPartition(self._topic, partition)
        try:
            return self._consumer.get_watermark_offsets(place, timeout=_ASK_TIMEOUT_S) or (0, 0)
        except KafkaException:
            return 0, 0
