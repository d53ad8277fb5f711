"""A fenced producer that is closed neither fences nor commits any more."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from dalsegno.streams.engine import fence, producers
from dalsegno.streams.engine.errors import OutcomeUnknownError
from dalsegno.streams.engine.fence import FencedProducer
from dalsegno.streams.engine.settings import EngineSettings

SETTINGS = EngineSettings(bootstrap_servers="127.0.0.1:1")


class Library:
    """As librdkafka's producer while its broker is away: calls end by their own timeouts."""

    def __init__(self, _options: object) -> None:
        self.calls: list[str] = []
        self.answers_after = 1_000_000
        self.waits = threading.Event()
        self.goes_on = threading.Event()

    def _wait(self, name: str) -> None:
        self.calls.append(name)
        self.waits.set()
        self.goes_on.wait(60)
        if len(self.calls) < self.answers_after:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def init_transactions(self, _timeout_s: float) -> None:
        self._wait("fence")

    def begin_transaction(self) -> None:
        self.calls.append("begin")

    def commit_transaction(self, _timeout_s: float) -> None:
        self._wait("commit")

    def purge(self) -> None:
        """There is nothing in it."""


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> FencedProducer:
    monkeypatch.setattr(producers, "Producer", Library)
    return FencedProducer(SETTINGS, "t")


def library(producer: FencedProducer) -> Library:
    made: Any = producer._handle.producer
    assert isinstance(made, Library)
    return made


def begun(producer: FencedProducer) -> Any:
    return producer.start()


def committed(producer: FencedProducer) -> Any:
    return producer.commit({})


@pytest.mark.parametrize("work", [begun, committed])
async def test_what_waits_for_the_broker_is_not_tried_again_once_it_is_closed(
    producer: FencedProducer, work: Callable[[FencedProducer], Any]
) -> None:
    made = library(producer)
    working = asyncio.create_task(work(producer))
    await asyncio.to_thread(made.waits.wait, 60)
    calls = list(made.calls)
    closing = asyncio.create_task(producer.close())
    await asyncio.sleep(0)  # it has begun
    assert producer._closing
    made.goes_on.set()
    await closing
    with pytest.raises(OutcomeUnknownError):
        await working
    assert made.calls == calls
    assert not producer._handle


async def test_what_is_asked_for_behind_a_close_does_not_begin(producer: FencedProducer) -> None:
    made = library(producer)
    made.goes_on.set()
    producer._closing = True
    with pytest.raises(OutcomeUnknownError, match="closed"):
        await producer.commit({})
    assert made.calls == []


async def test_a_call_that_takes_long_goes_on_where_it_was(producer: FencedProducer) -> None:
    made = library(producer)
    made.answers_after = 4
    made.goes_on.set()
    await producer.start()
    assert made.calls == ["fence"] * 4


async def test_its_own_bound_holds(
    producer: FencedProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fence, "_START_TIMEOUTS", 0)
    library(producer).goes_on.set()
    with pytest.raises(OutcomeUnknownError, match="_TIMED_OUT"):
        await producer.start()
