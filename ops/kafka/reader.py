"""Read a partition from a place to its present end, or learn of topics."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from dalsegno.ops.remedies import BROKERS_REMEDY
from dalsegno.streams.client.refused import Complaints, connect, raise_if_no_right
from dalsegno.streams.engine.header_names import LenientHeaders
from dalsegno.streams.engine.raw import raw_event
from dalsegno.streams.engine.security import librdkafka_options
from dalsegno.streams.engine.settings import EngineSettings

Headers = tuple[tuple[str, bytes], ...]

_ASK_S = 5.0
_LOOK_S = 0.1
_SETTLE_S = 2.0
"""How long a broker may take to tell of a topic that was just made."""
_PASSING = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
)
_PATIENCE_S = 30.0
"""Without one record from a broker that had more."""
_CHUNK = 2_000
_WAIT_S = 1.0
_REMEDY = "see that the brokers run, then repeat"


class ReadError(Exception):
    """Kafka did not answer, or does not have what was asked for. The message says what to do."""


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record as it lies in the log. `at_ms`: its append time, Unix ms."""

    partition: int
    offset: int
    at_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Reader:
    """Reads committed records of whole partitions. Close it, or use it as a context manager."""

    def __init__(self, settings: EngineSettings) -> None:
        self._servers = settings.bootstrap_servers
        self._complaints = Complaints()
        self._lenient = LenientHeaders(settings)
        self._options = {
            **librdkafka_options(settings),
            "error_cb": self._complaints,
            "group.id": f"{settings.prefix}.reader",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 50,
        }
        self._consumer = connect(Consumer, self._options)

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has. Raises ReadError when it is not there, BrokerRefused."""
        limit = time.monotonic() + _SETTLE_S
        while True:
            try:
                found = self._consumer.list_topics(topic, timeout=_ASK_S).topics.get(topic)
            except KafkaException as error:
                raise_if_no_right(error.args[0], topic)
                self._consumer.poll(0)  # what librdkafka has to say is heard here
                if (refusal := self._complaints.refusal(self._options)) is not None:
                    raise refusal from error
                said = f"no Kafka at {self._servers}: {_text(error)}; {BROKERS_REMEDY}"
                raise ReadError(said) from error
            if found is not None and found.error is None and found.partitions:
                return len(found.partitions)
            if found is not None and found.error is not None:
                raise_if_no_right(found.error, topic)
            if time.monotonic() > limit:
                raise ReadError(f"there is no topic {topic}: run `dalsegno topics create`")
            time.sleep(_LOOK_S)

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """First offset, and one beyond the last. Raises ReadError, BrokerRefused."""
        limit = time.monotonic() + _ASK_S
        place = TopicPartition(topic, partition)
        while True:
            try:
                found = self._consumer.get_watermark_offsets(place, timeout=_ASK_S)
            except KafkaException as error:
                raise_if_no_right(error.args[0], topic)
                # Of a topic that was just made, or a leader that just moved: it passes.
                if error.args[0].code() not in _PASSING or time.monotonic() > limit:
                    raise ReadError(f"{topic}[{partition}]: {_text(error)}; {_REMEDY}") from error
                time.sleep(_LOOK_S)
                continue
            if found is None:
                raise ReadError(f"{topic}[{partition}]: no answer from {self._servers}; {_REMEDY}")
            return found[0], found[1]

    def offset_at(self, topic: str, partition: int, at_ms: int) -> int:
        """The first offset whose record is not older, or the end. Raises as `bounds`."""
        place = TopicPartition(topic, partition, max(0, at_ms))
        try:
            (found,) = self._consumer.offsets_for_times([place], timeout=_ASK_S)
        except KafkaException as error:
            raise_if_no_right(error.args[0], topic)
            raise ReadError(f"{topic}[{partition}]: {_text(error)}; {_REMEDY}") from error
        return found.offset if found.offset >= 0 else self.bounds(topic, partition)[1]

    def read(
        self,
        topic: str,
        partition: int,
        start: int | None = None,
        end: int | None = None,
        progress: Callable[[int], None] = lambda _: None,
    ) -> Iterator[LogRecord]:
        """Records from `start` (default: the first) up to `end` (default: as of now).

        `progress` gets the number of offsets passed since its last call. Raises ReadError,
        BrokerRefused.
        """
        first, last = self.bounds(topic, partition)
        position = first if start is None else max(start, first)
        stop = last if end is None else min(end, last)
        if position >= stop:
            return
        self._consumer.assign([TopicPartition(topic, partition, position)])
        deadline = time.monotonic() + _PATIENCE_S
        while position < stop:
            messages = self._next()
            before = position
            for message in messages:
                if (error := message.error()) is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        position = stop  # markers of transactions may fill the rest
                        break
                    raise_if_no_right(error, topic)
                    if error.fatal() or error.code() == KafkaError._AUTO_OFFSET_RESET:
                        said = f"{topic}[{partition}] at {position}: {error.str()}"
                        raise ReadError(f"{said}; {_REMEDY}")
                    continue
                record = _record(message, self._lenient)
                if record.offset >= stop:
                    position = stop
                    break
                position = record.offset + 1
                yield record
            progress(position - before)
            if position > before:  # a broker that only ever has errors is not waited for
                deadline = time.monotonic() + _PATIENCE_S
            elif time.monotonic() > deadline:
                raise ReadError(
                    f"{topic}[{partition}]: nothing within {_PATIENCE_S:.0f} s; {_REMEDY}"
                )
        self._consumer.unassign()

    def _next(self) -> list[Message]:
        """What has come, once anything has. `consume` alone waits its time out for a full chunk."""
        first = self._consumer.poll(_WAIT_S)
        return [] if first is None else [first, *self._consumer.consume(_CHUNK - 1, 0.0)]


def _record(message: Message, lenient: LenientHeaders) -> LogRecord:
    raw, partition = raw_event(message, lenient), message.partition()
    assert partition is not None
    return LogRecord(partition, raw.offset, raw.timestamp, raw.key, raw.value, raw.headers)


def _text(error: KafkaException) -> str:
    found = error.args[0]
    return found.str() if isinstance(found, KafkaError) else str(error)
