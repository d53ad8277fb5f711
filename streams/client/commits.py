"""The commit that takes handoffs: synchronous, and certain before anything is started."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from dalsegno.streams.client.marks import Place, mark_text

_LOG = logging.getLogger("dalsegno.worker")
_READ_BACKS_MAX = 10  # of 1 s at least: longer than a broker's restart
_READ_BACK_PAUSE_S = 1.0

_REFUSED = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.OFFSET_METADATA_TOO_LARGE,
        KafkaError.INVALID_COMMIT_OFFSET_SIZE,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""Errors that say the commit did not happen. Every other one leaves it open."""
_FENCED = frozenset({KafkaError._FATAL, KafkaError._FENCED, KafkaError.FENCED_INSTANCE_ID})


class Fenced(Exception):  # noqa: N818 - ends the consumer's thread
    """Another process has this worker's place in the group."""


class Commits:
    """Commits of one member of a queue's group."""

    def __init__(
        self, consumer: Consumer, topic: str, worker: str, incarnation: int, timeout_s: float
    ) -> None:
        self._consumer = consumer
        self._topic = topic
        self._worker = worker
        self._incarnation = incarnation
        self._timeout_s = timeout_s

    def commit(
        self, ends: Mapping[int, int], places: Mapping[int, Place], stopping: Callable[[], bool]
    ) -> set[int]:
        """Commit the next offset (`ends`) and the mark of each partition; those that are certain.

        Blocks until the outcome is known or nobody tells it (then the partition is not among the
        certain ones, and nothing of it may be started). Raises `Fenced`.
        """
        wanted = [
            TopicPartition(
                self._topic,
                partition,
                end,
                mark_text(places[partition], self._worker, self._incarnation),
            )
            for partition, end in sorted(ends.items())
        ]
        try:
            results = self._consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as error:
            return self._after(error.args[0], wanted, stopping)
        open_ones = [r for r in results if r.error is not None]
        if not open_ones:
            return {place.partition for place in wanted}
        certain = {r.partition for r in results if r.error is None}
        failed = [place for place in wanted if place.partition not in certain]
        return certain | self._after(open_ones[0].error, failed, stopping)

    def _after(
        self, error: KafkaError, wanted: list[TopicPartition], stopping: Callable[[], bool]
    ) -> set[int]:
        if error.code() in _FENCED:
            raise Fenced(error.str())
        if error.code() in _REFUSED:
            _LOG.info("%s: commit refused, nothing of it is started: %s", self._topic, error)
            return set()
        _LOG.warning("%s: commit of unknown outcome, reading it back: %s", self._topic, error)
        for _ in range(_READ_BACKS_MAX):
            found = self._read_back(wanted)
            if found is not None:
                return found
            if stopping():
                break
            time.sleep(_READ_BACK_PAUSE_S)  # in the consumer's own thread; a stop waits for it
        return set()

    def _read_back(self, wanted: list[TopicPartition]) -> set[int] | None:
        """The partitions whose commit shows in the group; None while nobody tells."""
        asked = [TopicPartition(self._topic, place.partition) for place in wanted]
        try:
            found = self._consumer.committed(asked, timeout=self._timeout_s)
        except KafkaException as error:
            _LOG.warning("%s: the group's offsets cannot be read: %s", self._topic, error)
            return None
        if any(place.error is not None for place in found):
            return None
        shown = {place.partition: (place.offset, place.metadata) for place in found}
        return {p.partition for p in wanted if shown[p.partition] == (p.offset, p.metadata)}
