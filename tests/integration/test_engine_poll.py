"""What the poller hands out of a real broker: every record, in order, from where it is asked."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable

import pytest
from aiokafka import TopicPartition
from confluent_kafka import Producer
from tests.integration.engine.harness import Lab, wait_for

from dalsegno.streams.engine.errors import OffsetGoneError
from dalsegno.streams.engine.lanes import RECORDS_MAX
from dalsegno.streams.engine.poll import Polled, Poller

pytestmark = pytest.mark.kafka


class Reader:
    """A poller, and the loop that takes from it."""

    def __init__(self, lab: Lab) -> None:
        self._came = asyncio.Event()
        self.poller = Poller(lab.settings, self._came.set, time.monotonic)

    def take(self, wanted: dict[TopicPartition, int], most: int = 1_000_000) -> Polled:
        return self.poller.take(wanted, most, lambda _place: True)

    async def read(self, place: TopicPartition, position: int, end: int) -> list[int]:
        """Offsets of what is handed out from `position` on, until `end` is reached."""
        found: list[int] = []
        async with asyncio.timeout(60):
            while position < end:
                self._came.clear()
                polled = self.take({place: position})
                if not polled:
                    await self._came.wait()
                    continue
                assert not polled.errors
                found += [record.offset for record in polled.fetched[place].records]
                position = polled.fetched[place].next_position
        return found

    async def error(self, place: TopicPartition, position: int) -> Exception:
        """What is said instead of records."""
        async with asyncio.timeout(60):
            while not (polled := self.take({place: position})).errors:
                self._came.clear()
                await self._came.wait()
        return polled.errors[place]

    async def until(self, look: Callable[[], bool]) -> None:
        """Wait for something that the poller's thread does."""
        async with asyncio.timeout(60):
            while not look():
                self._came.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._came.wait(), 0.05)


@pytest.fixture
async def reader(lab: Lab) -> AsyncIterator[Reader]:
    made = Reader(lab)
    yield made
    await made.poller.close()


def fill(lab: Lab, partition: int, count: int, size: int = 1) -> TopicPartition:
    for number in range(count):
        lab.send_raw(partition, str(number).encode(), bytes(size))
    lab.flush()
    return TopicPartition(lab.topics.events, partition)


async def test_a_position_anywhere_gives_the_records_from_there_on(
    lab: Lab, reader: Reader
) -> None:
    place = fill(lab, 1, 50)
    assert await reader.read(place, 0, 50) == list(range(50))
    assert await reader.read(place, 7, 50) == list(range(7, 50))  # back: a batch that was dropped
    fill(lab, 1, 10)
    assert await reader.read(place, 55, 60) == list(range(55, 60))
    assert await reader.read(place, 50, 60) == list(range(50, 60))


async def test_nothing_of_aborted_transactions_comes_and_their_markers_hold_up_nothing(
    lab: Lab, reader: Reader
) -> None:
    place = fill(lab, 0, 2)
    producer = Producer({"bootstrap.servers": lab.bootstrap, "transactional.id": "stranger"})
    producer.init_transactions()
    for ends_well in (False, True, False):
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(place.topic, b"v", b"k", partition=0)
        producer.flush()
        (producer.commit_transaction if ends_well else producer.abort_transaction)()
    # The last marker is written after its transaction's end was answered.
    wait_for("all markers", lambda: lab.end(place.topic, 0) == 14)
    end = 14
    assert await reader.read(place, 0, end) == [0, 1, 6, 7, 8]
    assert await reader.read(place, 3, end) == [6, 7, 8]  # from within what was aborted
    fill(lab, 0, 1)
    assert await reader.read(place, end, end + 1) == [end]


async def test_a_partition_that_nobody_takes_from_holds_up_no_other_and_loses_nothing(
    lab: Lab, reader: Reader
) -> None:
    many = RECORDS_MAX * 3
    full, other = fill(lab, 0, many), fill(lab, 1, 5)
    first = reader.take({full: 0, other: 0})
    assert not first
    assert await reader.read(other, 0, 5) == list(range(5))
    await reader.until(lambda: reader.poller.lanes[full].full(parked=False))
    fill(lab, 1, 5)
    assert await reader.read(other, 5, 10) == list(range(5, 10))
    waiting = reader.poller.lanes[full].fetched
    assert waiting < many  # it was parked, with a bound
    assert await reader.read(full, 0, many) == list(range(many))


async def test_an_offset_that_the_log_does_not_hold_is_an_error_of_its_partition(
    lab: Lab, reader: Reader
) -> None:
    beyond, good = fill(lab, 2, 3), fill(lab, 3, 3)
    assert isinstance(await reader.error(beyond, 1_000), OffsetGoneError)
    assert await reader.read(good, 0, 3) == [0, 1, 2]
    assert await reader.read(beyond, 0, 3) == [0, 1, 2]


async def test_a_partition_that_is_not_wanted_any_more_is_let_go(lab: Lab, reader: Reader) -> None:
    place = fill(lab, 1, 3)
    assert await reader.read(place, 0, 3) == [0, 1, 2]
    reader.poller.take({}, 1, lambda _place: False)
    assert reader.poller.lanes == {}
    assert await reader.read(place, 0, 3) == [0, 1, 2]
