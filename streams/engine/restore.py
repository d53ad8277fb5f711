"""Reading a partition back: its changelog up to our own claim, and the tails of its output topics.

Runs on a thread, on librdkafka, which fetches and unpacks outside Python's lock: the other
partitions go on meanwhile.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as ListOf
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from dalsegno.schemas import headers
from dalsegno.schemas.codec import decode_if
from dalsegno.schemas.outputs import Claim
from dalsegno.streams.client.record_headers import HeaderNamesError, headers_of
from dalsegno.streams.core.sequence import Sequence
from dalsegno.streams.engine.errors import RestoreError
from dalsegno.streams.engine.security import librdkafka_options
from dalsegno.streams.engine.settings import EngineSettings
from dalsegno.streams.engine.sinks import Sink

Headers = ListOf[tuple[str, bytes]]

CLAIM_KEY: Final = b"\x00claim"
"""Key of the owner's claim in the changelog. It is not a part of the state."""

_CHUNK_RECORDS: Final = 10_000
_POLL_S: Final = 0.02
_TAIL_TIMEOUT_S: Final = 5.0
_ASK_TIMEOUT_S: Final = 10.0


@dataclass(slots=True)
class RestoreProgress:
    """How far a restore is: offsets of the changelog partition. Written by one thread."""

    position: int = 0
    end: int = 0
    records: int = 0
    cancelled: bool = False

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return min(1.0, self.position / self.end) if self.end else 0.0


@dataclass(frozen=True, slots=True)
class Restored:
    """What was read. `log_start` and `log_end` bound the events partition at that time."""

    marks: dict[str, Sequence]
    log_start: int
    log_end: int


@dataclass(frozen=True, slots=True)
class RestoreJob:
    """Which partition to read back. `channels`: ordered output topics by channel name."""

    partition: int
    claim_id: str
    events: str
    changelog: str
    channels: Mapping[str, str] = field(default_factory=dict)


def restore(
    settings: EngineSettings, job: RestoreJob, progress: RestoreProgress, sink: Sink
) -> Restored:
    """Read what the sink lacks. Blocks; raises `RestoreError` when the brokers give nothing for too
    long, and what the sink raises.
    """
    consumer = Consumer(
        {
            **librdkafka_options(settings),
            "group.id": f"{settings.group}-restore",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "check.crcs": False,
            "fetch.wait.max.ms": 20,
            "fetch.queue.backoff.ms": 5,
            "fetch.message.max.bytes": 4 << 20,
            "queued.min.messages": 100_000,
            "queued.max.messages.kbytes": 65_536,
        }
    )
    try:
        marks = read_tails(consumer, job)
        start, end = _bounds(consumer, job.events, job.partition)
        _read_changelog(consumer, settings, job, progress, sink)
    except KafkaException as error:
        raise RestoreError(f"partition {job.partition}: {error}") from error
    finally:
        consumer.close()
    return Restored(marks, start, end)


def _bounds(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    found = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_ASK_TIMEOUT_S)
    if found is None:
        raise RestoreError(f"no answer about the offsets of {topic}[{partition}]")
    return found[0], found[1]


def _read_changelog(
    consumer: Consumer,
    settings: EngineSettings,
    job: RestoreJob,
    progress: RestoreProgress,
    sink: Sink,
) -> None:
    """All parts up to our claim.

    The claim was committed after every earlier owner was fenced, so whatever was committed before
    it is now all seen. It also is the end: no offset has to be compared, whether or not the log
    closes with transaction markers.
    """
    start, progress.end = _bounds(consumer, job.changelog, job.partition)
    progress.position = start = sink.begin(start, progress.end)
    consumer.assign([TopicPartition(job.changelog, job.partition, start)])
    patience_s = settings.restore_timeout_ms / 1_000
    deadline = time.monotonic() + patience_s
    while not progress.cancelled:
        messages = _checked(consumer.consume(_CHUNK_RECORDS, _POLL_S))
        if messages:
            deadline = time.monotonic() + patience_s
            progress.records += len(messages)
            changes: dict[bytes, bytes | None] = {}
            ours = _take(messages, changes, job.claim_id)
            progress.position = _offset(messages[ours - 1]) + 1
            sink.take(changes, progress.position)
            if ours:
                sink.finish(progress.position)
                progress.position = progress.end
                return
        elif time.monotonic() > deadline:
            raise RestoreError(
                f"{job.changelog}[{job.partition}]: our claim did not show within {patience_s} s "
                f"(read to {progress.position} of {progress.end})"
            )
    raise RestoreError(f"partition {job.partition}: given up, it is no longer ours")


def _take(messages: Iterable[Message], changes: dict[bytes, bytes | None], claim_id: str) -> int:
    """The last value of each key; how many messages that is up to our claim, 0 if it is not there.

    What stands behind our claim is of a newer owner, who has fenced us: perhaps half a checkpoint.
    """
    for count, message in enumerate(messages, 1):
        key, value = message.key(), message.value()
        if key == CLAIM_KEY:
            if _claim_id(value) == claim_id:
                return count
        else:
            changes[key] = value
    return 0


def _claim_id(value: bytes | None) -> str:
    claim = decode_if(Claim, value)
    return "" if claim is None else claim.claim_id


def read_tails(consumer: Consumer, job: RestoreJob) -> dict[str, Sequence]:
    """By channel, the sequence of the last record of its output partition.

    All smaller sequences are there as well, so a tail that we fail to read in time only means that
    more is sent again.
    """
    names: dict[str, str] = {}
    places: list[TopicPartition] = []
    for channel, topic in job.channels.items():
        low, high = _bounds(consumer, topic, job.partition)
        if high > low:
            names[topic] = channel
            places.append(TopicPartition(topic, job.partition, high - 1))
    marks: dict[str, Sequence] = {}
    if not places:
        return marks
    consumer.assign(places)
    deadline = time.monotonic() + _TAIL_TIMEOUT_S
    while len(marks) < len(places) and time.monotonic() < deadline:
        for message in _checked(consumer.consume(len(places), _POLL_S)):
            sequence = sequence_in(message)
            if sequence is not None:
                marks[names[message.topic() or ""]] = sequence
    consumer.unassign()
    return marks


def sequence_in(message: Message) -> Sequence | None:
    """The sequence of an output; None for a record that is none of ours."""
    try:
        return sequence_of(headers_of(message))
    except HeaderNamesError:
        return None


def sequence_of(found: Headers) -> Sequence | None:
    """The sequence in a record's headers: the last one, since a dead letter keeps the
    original's.
    """
    for name, value in reversed(found):
        if name == headers.SEQUENCE:
            try:
                return Sequence.unpack(value)
            except struct.error:
                return None
    return None


def _checked(messages: list[Message]) -> list[Message]:
    good: list[Message] = []
    for message in messages:
        error = message.error()
        if error is None:
            good.append(message)
        elif error.code() == KafkaError._AUTO_OFFSET_RESET or error.fatal():
            raise KafkaException(error)
    return good


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return int(offset)
