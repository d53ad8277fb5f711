"""A thread of the worker that cannot go on says so: a worker never looks alive and does nothing."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from dalsegno.streams.client.clocks import Clocks
from dalsegno.streams.client.config import ClientConfig
from dalsegno.streams.client.consumer import QueueConsumer
from dalsegno.streams.client.heartbeats import Heartbeats
from dalsegno.streams.client.holding import Holding
from dalsegno.streams.client.marks import Seen


class Broken:
    """A consumer whose every poll raises."""

    def subscribe(self, *_: Any, **__: Any) -> None:
        pass

    def poll(self, _timeout_s: float) -> None:
        raise KafkaException(KafkaError(KafkaError._STATE))

    def close(self) -> None:
        pass


def test_a_consumer_that_raises_ends_its_session() -> None:
    told = threading.Event()
    said: list[str] = []

    def broken(detail: str) -> None:
        said.append(detail)
        told.set()

    consumer = QueueConsumer(
        ClientConfig(bootstrap_servers="nowhere:9"),
        {},
        "default",
        holding=Holding(1),
        seen=Seen(10),
        take=lambda _batch: None,
        fenced=pytest.fail,
        broken=broken,
        clocks=Clocks(),
        factory=lambda _settings: Broken(),  # type: ignore[arg-type,return-value]
    )
    consumer.start("w", 1, 0.0)
    assert told.wait(10.0)
    consumer.stop()
    assert "default" in said[0]


def test_heartbeats_that_raise_abandon_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = threading.Event()
    heartbeats = Heartbeats(
        None,  # type: ignore[arg-type]
        "heartbeats",
        Holding(1),
        lambda _attempts, everything: lost.set() if everything else None,
        worker="w",
        incarnation=1,
        interval_s=0.01,
        lease_s=8.0,
        clocks=Clocks(),
    )
    monkeypatch.setattr(heartbeats, "tick", lambda: 1 // 0)
    heartbeats.start()
    assert lost.wait(10.0)
    heartbeats.stop()
