"""The engine's producer at a real broker: who hears of an acknowledgement may send at once."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message
from tests.integration.engine.harness import Lab

from dalsegno.ops.embedded import EmbeddedKafka
from dalsegno.streams.engine import producers
from dalsegno.streams.engine.encoding import OutRecord
from dalsegno.streams.engine.producers import IdempotentProducer

pytestmark = pytest.mark.kafka

ROUNDS = 40
LINGER_MS = 20.0


class Timers:
    """The loop's timers, counted while they are pending."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.pending = self.most = 0

    def call_later(self, delay: float, callback: Any, *args: Any) -> asyncio.TimerHandle:
        self.pending += 1
        self.most = max(self.most, self.pending)

        def fire() -> None:
            self.pending -= 1
            callback(*args)

        return self._loop.call_later(delay, fire)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


async def test_one_timer_polls_though_each_acknowledgement_sends_the_next_record(lab: Lab) -> None:
    producer = IdempotentProducer(lab.settings, LINGER_MS)
    producer.acquire()
    timers = Timers(asyncio.get_running_loop())
    producer._loop = timers  # type: ignore[assignment]
    record = OutRecord(lab.topics.transitions, 0, b"k", b"v", [])
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    acked = 0

    def heard(error: KafkaError | None, _message: Message) -> None:
        nonlocal acked
        assert error is None
        acked += 1
        if acked == ROUNDS:
            done.set_result(None)
        else:
            producer.send(record, heard)

    producer.send(record, heard)
    producer.send(record, lambda _error, _message: None)  # another is under way meanwhile
    async with asyncio.timeout(60):
        await done
    assert timers.most == 1
    await producer.close()


async def test_a_close_with_a_record_in_flight_is_a_close(
    own_lab: tuple[Lab, EmbeddedKafka], monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, broker = own_lab
    monkeypatch.setattr(producers, "_TOPIC_TIMEOUT_S", 1.0)
    producer = IdempotentProducer(lab.settings, 0.0)
    record = OutRecord(lab.topics.transitions, 0, b"k", b"v", [])
    first = await producer.append(record)
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        producer.send(record, lambda _error, _message: None)
        assert not await producer.knows("a-topic"), "the record has left, and nobody answers"
        await producer.close()
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    assert first.offset == 0


@pytest.mark.parametrize("bad", [0, 1, 4])
async def test_the_last_record_hears_of_one_before_it_that_the_broker_refused(
    lab: Lab, bad: int
) -> None:
    """Of what leaves together only the last is heard of: see `outputs.Channel`."""
    producer = IdempotentProducer(lab.settings, 0.0)
    producer.acquire()
    topic = lab.topics.transitions
    await producer.append(OutRecord(topic, 0, b"k", b"first", []))
    heard: asyncio.Future[KafkaError | None] = asyncio.get_running_loop().create_future()
    # Each of them is a request of its own.
    values = [os.urandom(2_000_000 if number == bad else 900_000) for number in range(6)]
    for value in values[:-1]:
        producer.send(OutRecord(topic, 0, b"k", value, []), None)
    last = OutRecord(topic, 0, b"k", values[-1], [])
    producer.send(last, lambda error, _message: heard.set_result(error))
    async with asyncio.timeout(30):
        assert await heard is not None
    assert producer.spoilt
    await producer.close()
    kept = [message.value() for message in lab.read(topic, 0)]
    assert kept == [b"first", *values[: len(kept) - 1]]
    assert len(kept) <= 1 + bad, "nothing is appended after what is missing"
