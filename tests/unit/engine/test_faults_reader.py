"""What the readers of the faults topic are handed: every record, and an end when they are told."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from dalsegno.streams.engine.errors import OutcomeUnknownError
from dalsegno.streams.engine.faults_reader import FaultsFeed, FaultsReader
from dalsegno.streams.engine.raw import RawEvent
from dalsegno.streams.engine.settings import EngineSettings

SETTINGS = EngineSettings(bootstrap_servers="127.0.0.1:1")


def record(offset: int) -> Message:
    return Message(topic="faults", partition=0, offset=offset, value=b"v", timestamp=(2, 1))


async def test_a_reader_that_is_told_to_end_as_its_records_come_ends() -> None:
    """A cancellation that came with them was swallowed: nobody could close it any more."""
    feed = FaultsFeed(0, 0)

    async def reads() -> None:
        while True:
            await feed.next(60)

    reading = asyncio.create_task(reads())
    for _ in range(5):
        await asyncio.sleep(0)
    feed.put([RawEvent(0, 1, None, b"v", ())])
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    reading.cancel()
    for _ in range(20):
        await asyncio.sleep(0)
    assert reading.done()


async def test_a_trouble_of_the_client_costs_no_record_that_came_beside_it() -> None:
    reader = FaultsReader(SETTINGS)
    feed = reader._feeds[0] = reader._assigned[0] = FaultsFeed(0, 7)
    down = Message(error=KafkaError(KafkaError._ALL_BROKERS_DOWN))
    with pytest.raises(KafkaException):
        reader._hand_out([record(7), down, record(8)])
    assert [raw.offset for raw in await feed.next(1)] == [7, 8]
    assert feed.position == 9


async def test_readers_hear_of_a_client_that_cannot_be_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def raises(_reader: FaultsReader) -> None:
        raise KafkaException(KafkaError(KafkaError._CRIT_SYS_RESOURCE))

    monkeypatch.setattr(FaultsReader, "_connect", raises, raising=False)
    feed = FaultsReader(SETTINGS).open(0, 0)
    with pytest.raises(OutcomeUnknownError, match="CRIT_SYS_RESOURCE"):
        await feed.next(60)
