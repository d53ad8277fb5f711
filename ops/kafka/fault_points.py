"""Fault points as their changelog says, and hand controls on their topic."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator

from dalsegno.ops.kafka.reader import Reader
from dalsegno.ops.kafka.writer import Writer
from dalsegno.schemas import codec, headers
from dalsegno.schemas.control import ControlEvent, PartitionControl
from dalsegno.schemas.faults import FaultPointSet, HandAction, PointControl
from dalsegno.schemas.partitioner import partition_for
from dalsegno.streams.core.faultpoint.actors import point_of_part
from dalsegno.streams.core.faultpoint.point import FaultPoint
from dalsegno.streams.engine.settings import EngineSettings


class NoSuchPointError(Exception):
    """Nothing was ever reported about a fault point of this name: it is healthy."""

    def __init__(self, name: str) -> None:
        super().__init__(f"nothing is known of a fault point {name!r}: it has always been healthy")


def read_points(settings: EngineSettings) -> list[FaultPoint]:
    """All fault points, by name, as of the last checkpoints. Raises ReadError, StateCorrupt."""
    topic = settings.topics.faults_changelog
    parts: dict[tuple[int, bytes], bytes] = {}
    with Reader(settings) as reader:
        for partition in range(reader.partitions(topic)):
            for record in reader.read(topic, partition):
                place = (partition, record.key or b"")
                if record.value is None:
                    parts.pop(place, None)
                else:
                    parts[place] = record.value
    found = list(_points(parts))
    return sorted(found, key=lambda point: point.name)


def _points(parts: dict[tuple[int, bytes], bytes]) -> Iterator[FaultPoint]:
    for (_, key), value in parts.items():
        point = point_of_part(key, value)
        if point is not None:
            yield point


def read_point(settings: EngineSettings, name: str) -> FaultPoint:
    """One fault point. Raises NoSuchPointError, ReadError."""
    for point in read_points(settings):
        if point.name == name:
            return point
    raise NoSuchPointError(name)


def steer(
    settings: EngineSettings,
    name: str,
    action: HandAction,
    *,
    by: str,
    reason: str,
    limit: int = 0,
) -> None:
    """Append a hand control, under a number above all before it: the time, unless an operator whose
    clock is ahead was here before. Raises AppendError, NoKeyError, ReadError.
    """
    try:
        last = read_point(settings, name).hand_number
    except NoSuchPointError:
        last = 0
    append_to_faults(
        settings,
        FaultPointSet(
            source="cli",
            fault_point=name,
            number=max(last + 1, time.time_ns() // 1_000_000),
            request_id=secrets.token_hex(8),
            action=action,
            decided_by=by,
            reason=reason,
            limit=limit,
        ),
    )


def append_to_faults(settings: EngineSettings, event: ControlEvent) -> None:
    """A control event on the faults topic, under its MAC: its partitions have the policy of those
    of the events.
    """
    writer = Writer(settings)
    topic, value = settings.topics.faults, codec.encode(event)
    if isinstance(event, PointControl):
        key = event.fault_point.encode()
        with Reader(settings) as reader:
            partition = partition_for(event.fault_point, reader.partitions(topic))
    else:
        assert isinstance(event, PartitionControl), "of a point, or of a partition"
        partition, key = event.partition, b"%d" % event.partition
    mac = settings.keyring.sign(writer.key(partition), topic, partition, value)
    writer.append(topic, partition, key, value, [(headers.MAC, mac)])
