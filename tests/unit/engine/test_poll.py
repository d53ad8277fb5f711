"""What the client hands out, and what it cannot take apart."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import READ_COMMITTED, FetchResult, PartitionRecords
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from dalsegno.streams.engine.poll import Polled, Poller, UnreadableRecordError

PLACE = TopicPartition("events", 0)


def fetched(name: str, *, spoil: bytes = b"") -> PartitionRecords:
    """One fetched record with a header of this name, its bytes replaced by `spoil`."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    builder.append(0, 1, b"key", b"value", [(name, b"v")])
    data = bytes(builder.build())
    if spoil:
        data = data.replace(name.encode(), spoil)
    return PartitionRecords(PLACE, MemoryRecords(data), [], 0, None, None, False, READ_COMMITTED)


def take(records: PartitionRecords) -> Polled:
    state = SimpleNamespace(position=0, highwater=1, paused=False, has_valid_position=True)
    state.consumed_to = lambda position: setattr(state, "position", position)
    assignment = SimpleNamespace(state_value=lambda _place: state, active=True)
    result = FetchResult(PLACE, assignment=assignment, partition_records=records, backoff=0)
    fetcher: Any = SimpleNamespace(
        _records={PLACE: result}, _notify=lambda _future: None, _wait_consume_future=None
    )
    found = Polled()
    Poller(SimpleNamespace(_fetcher=fetcher), None)._take(PLACE, state, 100, found)  # type: ignore[arg-type]
    assert PLACE not in fetcher._records
    return found


def test_records_come_with_their_headers() -> None:
    found = take(fetched("name"))
    assert [record.headers for record in found.fetched[PLACE].records] == [(("name", b"v"),)]


def test_a_header_whose_name_is_no_utf8_stops_its_partition_and_not_the_engine() -> None:
    found = take(fetched("name", spoil=b"\xff\xfe\xff\xfe"))
    assert isinstance(found.errors[PLACE], UnreadableRecordError)
    assert not found.fetched
