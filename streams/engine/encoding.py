"""Outputs of the fold as Kafka records: topic, partition, key, value and headers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from dalsegno.schemas import headers
from dalsegno.schemas.partitioner import partition_for
from dalsegno.schemas.topics import Topics
from dalsegno.streams.core.actions import (
    Audit,
    Dispatch,
    Escalate,
    Output,
    PutAside,
    Reply,
    ReportFault,
)

Headers = list[tuple[str, bytes]]

KEYED_CHANNELS: Final = frozenset({"control", "faults"})
"""Channels whose partition follows their own key: always sent again after a restore."""

OMITTED: Final = "dalsegno-omitted"
"""Header of a record whose value could not be sent: the reason. Its place in the order stays
taken.
"""

_RECORD_OVERHEAD_BYTES: Final = 128


class OutRecord(NamedTuple):
    """One Kafka record to append."""

    topic: str
    partition: int
    key: bytes
    value: bytes
    headers: Headers


class Encode(Protocol):
    """`dalsegno.schemas.codec.encode`."""

    def __call__(self, record: object) -> bytes:
        """The Kafka value of a record of the contract."""


class Encoder:
    """Encodes one partition's outputs. Pure: the same output gives the same bytes in every
    process.
    """

    def __init__(
        self,
        topics: Topics,
        partition: int,
        counts: Mapping[str, int],
        *,
        size_max: Callable[[str], int],
        encode: Callable[..., bytes],
        omitted: Callable[[str, str], None],
    ) -> None:
        """`counts`: partitions by topic, for channels with a key of their own. `size_max`: bytes
        that a record of a topic may have. `omitted(channel, reason)` hears of values that could not
        be sent.
        """
        self._topics = topics
        self._partition = partition
        self._counts = counts
        self._size_max = size_max
        self._encode = encode
        self._omitted = omitted
        self._source = partition.to_bytes(4, "big")

    def record(self, output: Output) -> OutRecord:
        """The record of an output. Never raises for what the output holds.

        A value that cannot be encoded, or is larger than its topic takes, is left out: the record
        keeps its key and sequence (readers insist on no gaps) and says why in the `OMITTED` header.
        """
        action = output.action
        sequence = (headers.SEQUENCE, output.sequence.pack())
        topic, partition, key = self._place(action)
        try:
            value, more = self._value(action)
        except (ValueError, TypeError, OverflowError) as error:
            # Encoding is pure, so every replay leaves out the same value for the same reason.
            reason = "encode_" + type(error).__name__
        else:
            size = len(key) + len(value) + _RECORD_OVERHEAD_BYTES
            if more:
                size += sum(len(name) + len(item) for name, item in more)
            if size <= self._size_max(topic):
                return OutRecord(topic, partition, key, value, [*more, sequence])
            reason = "too_large"
        self._omitted(action.channel, reason)
        return OutRecord(topic, partition, key, b"", [(OMITTED, reason.encode()), sequence])

    def _place(
        self, action: Dispatch | Reply | Audit | Escalate | ReportFault | PutAside
    ) -> tuple[str, int, bytes]:
        topics = self._topics
        match action:
            case Audit(transition):
                return topics.transitions, self._partition, transition.run_id.encode()
            case Dispatch(queue, handoff):
                return topics.queue(queue), self._partition, handoff.run_id.encode()
            case Reply(answer):
                return self._keyed(topics.control, answer.reply_to)
            case Escalate(escalation):
                return topics.escalations, self._partition, escalation.run_id.encode()
            case ReportFault(report):
                return self._keyed(topics.faults, report.fault_point)
            case PutAside():
                return topics.dead_letters, self._partition, action.key

    def _keyed(self, topic: str, key: str) -> tuple[str, int, bytes]:
        return topic, partition_for(key, self._counts[topic]), key.encode()

    def _value(
        self, action: Dispatch | Reply | Audit | Escalate | ReportFault | PutAside
    ) -> tuple[bytes, Headers]:
        encode = self._encode
        match action:
            case Audit(transition):
                return encode(transition), []
            case Dispatch(_, handoff, trace):
                return encode(handoff), [(headers.TRACEPARENT, trace.encode())] if trace else []
            case Reply(answer):
                return encode(answer), [(headers.SOURCE, self._source)]
            case Escalate(escalation):
                return encode(escalation), []
            case ReportFault(report):
                return encode(report), [(headers.SOURCE, self._source)]
            case PutAside(letter, _, value, original):
                return value, [*original, (headers.DEAD_LETTER, encode(letter))]
