"""A thread of the worker that cannot go on says so: a worker never looks alive and does nothing."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from dalsegno.schemas.codec import encode
from dalsegno.schemas.outputs import Answer, AnswerType, RunState
from dalsegno.streams.client.answers import AnswerReader
from dalsegno.streams.client.clocks import Clocks
from dalsegno.streams.client.config import ClientConfig
from dalsegno.streams.client.consumer import QueueConsumer
from dalsegno.streams.client.heartbeats import Heartbeats
from dalsegno.streams.client.holding import Holding
from dalsegno.streams.client.marks import Seen
from dalsegno.streams.client.outcomes import Outcomes


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


def test_an_answer_that_cannot_be_taken_in_costs_only_itself() -> None:
    """Whoever may write to the topic could end the thread that reads all answers."""
    outcomes = Outcomes(10)
    reader = AnswerReader.__new__(AnswerReader)
    reader._on_answer = lambda answer, _offset: outcomes.tell(answer)
    for run_id, context in (("bad", b"\xc1"), ("good", b"\x80")):
        answer = Answer(
            reply_to="c", run_id=run_id, answer=AnswerType.ENDED, run_state=RunState.SUCCEEDED,
            context=context,
        )  # fmt: skip
        reader._hand_on(Message(topic="control", partition=0, offset=0, value=encode(answer)))
    assert outcomes.ended("bad") is None
    good = outcomes.ended("good")
    assert good is not None
    assert good.succeeded
