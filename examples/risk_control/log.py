"""Reads whole topics back, as an outsider: nothing but the event contract."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from dalsegno.schemas import codec, headers
from dalsegno.schemas.errors import ContractError
from dalsegno.streams.core.sequence import Sequence


class Row(NamedTuple):
    """A record with its place and its append time (Unix ms)."""

    partition: int
    offset: int
    at_ms: int
    record: object


def read(bootstrap: str, topic: str) -> Iterator[Row]:
    """Every record that can be decoded, partition by partition in log order.

    Outputs that were sent again after a crash are dropped by their sequence, as any consumer does.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "risk-control-facts",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": False,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        for partition in sorted(partitions):
            yield from _read_partition(consumer, topic, partition)
    finally:
        consumer.close()


def _read_partition(consumer: Consumer, topic: str, partition: int) -> Iterator[Row]:
    place = TopicPartition(topic, partition, OFFSET_BEGINNING)
    low, high = consumer.get_watermark_offsets(place, timeout=10)
    if low == high:
        return
    consumer.assign([place])
    seen: tuple[int, int] = (-1, -1)
    while consumer.position([place])[0].offset < high:
        for message in consumer.consume(500, timeout=0.5):
            error = message.error()
            if error is not None:
                raise RuntimeError(f"{topic}[{partition}]: {error}")
            sequence = dict(message.headers() or []).get(headers.SEQUENCE)
            if sequence is not None:
                number = Sequence.unpack(sequence)[:2]
                if number <= seen:
                    continue
                seen = number
            try:
                record = codec.decode(message.value())
            except ContractError:
                continue
            yield Row(partition, message.offset(), message.timestamp()[1], record)
