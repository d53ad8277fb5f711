"""Records whose header names are no UTF-8, as they are read again."""

from __future__ import annotations

import gzip
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer import fetcher as fetcher_module
from aiokafka.consumer.fetcher import READ_COMMITTED, PartitionRecords
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from dalsegno.schemas.control import Policy
from dalsegno.schemas.intake import Intake
from dalsegno.schemas.mac import Keyring
from dalsegno.streams.core.record import Unreadable
from dalsegno.streams.engine.header_names import read_leniently
from dalsegno.streams.engine.reader import EventReader

PLACE = TopicPartition("events", 0)
# Of a batch, before its records.
_HEAD_BYTES = 61


def batch_of(*names: str, spoil: bytes = b"", compression: int = 0, first: int = 0) -> bytes:
    """A batch, one record for each name of a header. `spoil` replaces the bytes of `name`."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    for offset, name in enumerate(names):
        builder.append(offset, 1, b"key", b"value", [(name, b"v")])
    data = bytearray(builder.build())
    if spoil:
        data = data.replace(b"name", spoil)
    if compression:
        data = data[:_HEAD_BYTES] + gzip.compress(bytes(data[_HEAD_BYTES:]))
        data[8:12] = (len(data) - 12).to_bytes(4, "big")
        data[22] |= compression
    data[:8] = first.to_bytes(8, "big")
    return bytes(data)


def records_of(data: bytes) -> PartitionRecords:
    read_leniently()
    records = fetcher_module.MemoryRecords(data)
    return PartitionRecords(PLACE, records, [], 0, None, None, False, READ_COMMITTED)


def fetched(*names: str, spoil: bytes = b"", compression: int = 0) -> PartitionRecords:
    """One fetched batch."""
    return records_of(batch_of(*names, spoil=spoil, compression=compression))


def take(records: PartitionRecords) -> list[Any]:
    """As a consumer gets them."""
    return list(records)


def test_records_come_with_their_headers() -> None:
    found = take(fetched("name"))
    assert [record.headers for record in found] == [(("name", b"v"),)]


@pytest.mark.parametrize("compression", [0, 1])
def test_a_header_whose_name_is_no_utf8_costs_only_its_record(compression: int) -> None:
    found = take(fetched("ok", "name", "last", spoil=b"\xff\xfe\xff\xfe", compression=compression))
    records = found
    assert [record.offset for record in records] == [0, 1, 2]
    assert [record.value for record in records] == [b"value"] * 3
    intake = Intake("events", 1, Keyring({}))
    events = list(EventReader(intake, 0).read(SimpleNamespace(policy=Policy()), records))
    reasons = [event.event.reason for event in events if isinstance(event.event, Unreadable)]
    assert reasons == ["bad_frame", "bad_headers", "bad_frame"]
    assert events[1].headers == (("\\xff\\xfe\\xff\\xfe", b"v"),)
    assert (events[1].key, events[1].value) == (b"key", b"value")


def test_batches_around_one_with_a_bad_name_are_read_once() -> None:
    data = b"".join(
        batch_of("name", spoil=spoil, first=first)
        for first, spoil in ((5, b""), (6, b"\xff\xfe\xff\xfe"), (7, b""))
    )
    found = take(records_of(data))
    assert [record.offset for record in found] == [5, 6, 7]


def test_a_name_of_other_letters_is_text() -> None:
    found = take(fetched("\N{LATIN SMALL LETTER E WITH ACUTE}"))
    intake = Intake("events", 1, Keyring({}))
    (event,) = EventReader(intake, 0).read(
        SimpleNamespace(policy=Policy()),
        found,
    )
    assert isinstance(event.event, Unreadable)
    assert event.event.reason == "bad_frame"
