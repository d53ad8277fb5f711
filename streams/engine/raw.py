"""Records of librdkafka in the shape that readers take, also where a header's name is no text."""

from __future__ import annotations

from typing import NamedTuple

from aiokafka import TopicPartition
from confluent_kafka import Message

from dalsegno.streams.client.record_headers import HeaderNamesError, headers_of
from dalsegno.streams.engine.header_names import LenientHeaders


class RawEvent(NamedTuple):
    """A record as `EventReader` takes it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


def raw_event(message: Message, lenient: LenientHeaders) -> RawEvent:
    """The record. Names that are no UTF-8 are read by `lenient`, and come as lone surrogates.

    Raises `KafkaError` or `TimeoutError` while such a record cannot be read.
    """
    try:
        return _with(message, headers_of(message))
    except HeaderNamesError:
        offset = message.offset() or 0
        place = TopicPartition(message.topic(), message.partition())
        return _with(message, lenient.of(place, offset))


def raw_fault(message: Message) -> RawEvent:
    """A record of the faults topic. Without its headers it is refused, and only it."""
    try:
        return _with(message, headers_of(message))
    except HeaderNamesError:
        return _with(message, ())


def _with(message: Message, headers: tuple[tuple[str, bytes], ...]) -> RawEvent:
    return RawEvent(
        message.offset() or 0, message.timestamp()[1], message.key(), message.value(), headers
    )
