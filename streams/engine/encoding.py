"""Outputs of the fold as Kafka records: topic, partition, key, value and headers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from dalsegno.schemas import headers
from dalsegno.schemas.partitioner import partition_for
from dalsegno.schemas.topics import Topics
from dalsegno.streams.core.actions import (
    Action,
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

_RECORD_OVERHEAD_BYTES: Final = 128


class OutRecord(NamedTuple):
    """One Kafka record to append."""

    topic: str
    partition: int
    key: bytes
    value: bytes
    headers: Headers


# Past the Python-level `__new__` of the named tuple, as for sequences.
_new: Callable[[type[OutRecord], tuple[str, int, bytes, bytes, Headers]], OutRecord] = tuple.__new__


class Encoder:
    """Encodes one partition's outputs. Pure: the same output gives the same bytes in every
    process, but for the MAC of a report to a fault point, which hangs on the keys in force.
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
        sign: Callable[[str, int, bytes], bytes | None] | None = None,
    ) -> None:
        """`counts`: partitions by topic, for channels with a key of their own. `size_max`: bytes
        that a record of a topic may have. `omitted(channel, reason)` hears of values that could not
        be sent. `sign(topic, partition, value)`: the MAC of a report to a fault point, None
        while there is no key for it.
        """
        self._sign = sign
        self._topics = topics
        self._transitions = topics.transitions
        self._queues: dict[str, str] = {}
        self._partition = partition
        self._counts = counts
        self._size_max = size_max
        self._encode = encode
        self._omitted = omitted
        self._source = partition.to_bytes(4, "big")

    def record(self, output: Output) -> OutRecord:
        """The record of an output. Never raises for what the output holds.

        A value that cannot be encoded, or is larger than its topic takes, is left out: the record
        keeps its key and sequence (readers insist on no gaps) and says why in a header.
        """
        action = output.action
        sequence = (headers.SEQUENCE, output.sequence.pack())
        topic, partition, key = self._place(action)
        try:
            value, found = self._value(action)
        except (ValueError, TypeError, OverflowError) as error:
            # Encoding is pure: every replay leaves out the same value for the same reason. Not so
            # below, where the keys and the limits of today count.
            reason = "encode_" + type(error).__name__
        else:
            mac: bytes | None = b""
            if isinstance(action, ReportFault) and self._sign is not None:
                mac = self._sign(topic, partition, value)
                if mac is not None:
                    found.append((headers.MAC, mac))
            size = len(key) + len(value) + _RECORD_OVERHEAD_BYTES
            for name, item in found:
                size += len(name) + len(item)
            if mac is not None and size <= self._size_max(topic):
                found.append(sequence)
                return _new(OutRecord, (topic, partition, key, value, found))
            reason = "unsigned" if mac is None else "too_large"
        self._omitted(action.channel, reason)
        source = [(headers.SOURCE, self._source)] if action.channel in KEYED_CHANNELS else []
        omitted = (headers.OMITTED, reason.encode())
        return OutRecord(topic, partition, key, b"", [*source, omitted, sequence])

    def _place(self, action: Action) -> tuple[str, int, bytes]:
        if isinstance(action, Audit):
            return self._transitions, self._partition, action.transition.run_id.encode()
        if isinstance(action, Dispatch):
            topic = self._queues.get(action.queue)
            if topic is None:
                topic = self._queues[action.queue] = self._topics.queue(action.queue)
            return topic, self._partition, action.handoff.run_id.encode()
        if isinstance(action, Reply):
            return self._keyed(self._topics.control, action.answer.reply_to)
        if isinstance(action, Escalate):
            return self._topics.escalations, self._partition, action.escalation.run_id.encode()
        if isinstance(action, ReportFault):
            return self._keyed(self._topics.faults, action.report.fault_point)
        assert isinstance(action, PutAside), "only actors instruct"
        return self._topics.dead_letters, self._partition, action.key

    def _keyed(self, topic: str, key: str) -> tuple[str, int, bytes]:
        return topic, partition_for(key, self._counts[topic]), key.encode()

    def _value(self, action: Action) -> tuple[bytes, Headers]:
        encode = self._encode
        if isinstance(action, Audit):
            return encode(action.transition), []
        if isinstance(action, Dispatch):
            trace = [(headers.TRACEPARENT, action.trace.encode())] if action.trace else []
            return encode(action.handoff), trace
        if isinstance(action, Reply):
            return encode(action.answer), [(headers.SOURCE, self._source)]
        if isinstance(action, Escalate):
            return encode(action.escalation), []
        if isinstance(action, ReportFault):
            return encode(action.report), [(headers.SOURCE, self._source)]
        assert isinstance(action, PutAside), "only actors instruct"
        letter = (headers.DEAD_LETTER, encode(action.letter))
        return action.value, [*action.headers, letter]
