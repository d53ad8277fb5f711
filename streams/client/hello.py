"""A worker introduces itself before it takes anything.

1. A hello to the worker's home partition of the heartbeats; its offset is the worker's incarnation.
2. The same hello with the incarnation to every heartbeat partition, with the marks found there, so
   that monitors replace what an earlier incarnation had taken at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from dalsegno.schemas import codec
from dalsegno.schemas.liveness import Hello, Mark
from dalsegno.schemas.partitioner import partition_for
from dalsegno.streams.client.producer import OutRecord, Producer, Receipt


def say_hello(
    producer: Producer,
    topic: str,
    *,
    worker: str,
    host: str,
    marks: Sequence[Mark],
    sent_at_ms: int,
    timeout_s: float,
) -> Receipt:
    """The receipt's offset is the incarnation. Raises `DeliveryFailed`; it may be said again."""
    count = producer.partition_count(topic)

    def record(partition: int, incarnation: int, found: tuple[Mark, ...]) -> OutRecord:
        hello = Hello(
            partition=partition,
            worker=worker,
            incarnation=incarnation,
            host=host,
            marks=found,
            sent_at_ms=sent_at_ms,
        )
        return OutRecord(topic, partition, worker.encode(), codec.encode(hello))

    first = producer.deliver(record(partition_for(worker, count), -1, tuple(marks)), timeout_s)
    everywhere = [
        record(
            partition, first.offset, tuple(mark for mark in marks if mark.partition == partition)
        )
        for partition in range(count)
    ]
    producer.deliver_all(everywhere, timeout_s)
    return first


def came_from_elsewhere(
    worker: str, marks: Sequence[Mark], last_incarnation_here: int | None
) -> bool:
    """Whether an earlier incarnation of the name may still live on another host.

    On this host the kernel lock proves that it is gone; elsewhere nothing does.
    """
    earlier = {mark.incarnation for mark in marks if mark.worker == worker}
    return bool(earlier) and max(earlier) != last_incarnation_here
