"""A broker that has more and does not give it, or does not let us read or write."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from dalsegno.ops.kafka import reader as module
from dalsegno.ops.kafka.reader import Reader, ReadError
from dalsegno.ops.kafka.writer import Writer
from dalsegno.ops.people import deliveries
from dalsegno.streams.client.refused import BrokerRefused
from dalsegno.streams.engine.settings import EngineSettings


class Troubled:
    """A consumer that gets an error each time, or nothing."""

    def __init__(self, error: KafkaError | None) -> None:
        self._error = error

    def assign(self, _places: object) -> None:
        """Whatever it is to read."""

    def poll(self, _timeout_s: float) -> object:
        return None if self._error is None else SimpleNamespace(error=lambda: self._error)

    def consume(self, _most: int, _timeout_s: float) -> list[object]:
        return []

    def close(self) -> None:
        """Nothing is held."""


NO_RIGHT = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)


class Refusing(Troubled):
    """A broker that lets its user do none of it."""

    def __init__(self) -> None:
        super().__init__(NO_RIGHT)

    def offsets_for_times(self, *_: object, **__: object) -> list[object]:
        raise KafkaException(NO_RIGHT)

    get_watermark_offsets = list_topics = offsets_for_times


@pytest.mark.parametrize(
    "ask",
    [
        lambda reader: reader.partitions("t"),
        lambda reader: Reader.bounds(reader, "t", 0),
        lambda reader: reader.offset_at("t", 0, 1),
        lambda reader: list(reader.read("t", 0)),
    ],
)
def test_a_missing_right_is_said_at_once(
    monkeypatch: pytest.MonkeyPatch, ask: Callable[[Reader], object]
) -> None:
    with Reader(EngineSettings(bootstrap_servers="127.0.0.1:1")) as reader:
        reader._consumer.close()
        monkeypatch.setattr(module, "_PATIENCE_S", 0.0)
        monkeypatch.setattr(reader, "_consumer", cast("Any", Refusing()))
        monkeypatch.setattr(reader, "bounds", lambda _topic, _partition: (0, 5))
        with pytest.raises(BrokerRefused, match=r"\(t: TOPIC_AUTHORIZATION_FAILED: Broker: "):
            ask(reader)


class NeverTakes:
    """A producer whose every record is refused."""

    def __init__(self) -> None:
        self._told: list[Callable[[KafkaError, None], None]] = []

    def produce(self, *_: object, on_delivery: Any, **__: object) -> None:
        self._told.append(on_delivery)

    def poll(self, _timeout_s: float) -> int:
        return 0

    def flush(self, _timeout_s: float) -> int:
        for told in self._told:
            told(NO_RIGHT, None)
        return 0


@pytest.mark.parametrize(
    "write",
    [
        lambda writer: writer.append("t", 0, b"k", b"v"),
        lambda writer: writer.append_all("t", 0, [(b"k", b"v", ())]),
    ],
)
def test_a_missing_right_to_write_is_said(
    monkeypatch: pytest.MonkeyPatch, write: Callable[[Writer], object]
) -> None:
    writer = Writer(EngineSettings(bootstrap_servers="127.0.0.1:1"))
    monkeypatch.setattr(writer, "_producer", NeverTakes())
    with pytest.raises(BrokerRefused, match="t: TOPIC_AUTHORIZATION_FAILED"):
        write(writer)


@pytest.mark.parametrize("whole", [True, False])
def test_offsets_of_a_group_that_may_not_be_read_are_a_missing_right(
    whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)

    def committed(*_: object, **__: object) -> list[object]:
        if whole:
            raise KafkaException(error)
        return [SimpleNamespace(error=error)]

    consumer = SimpleNamespace(committed=committed, close=lambda: None)
    monkeypatch.setattr(deliveries, "Consumer", lambda _: consumer)
    with pytest.raises(BrokerRefused, match=r"group \S+: GROUP_AUTHORIZATION_FAILED"):
        deliveries._committed(EngineSettings(), "w", [])


@pytest.mark.parametrize("error", [None, KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION)])
def test_without_one_record_it_gives_up_and_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, error: KafkaError | None
) -> None:
    seconds = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: float(next(seconds)), sleep=lambda _s: None)
    with Reader(EngineSettings(bootstrap_servers="127.0.0.1:1")) as reader:
        reader._consumer.close()
        monkeypatch.setattr(module, "time", clock)
        monkeypatch.setattr(reader, "_consumer", cast("Any", Troubled(error)))
        monkeypatch.setattr(reader, "bounds", lambda _topic, _partition: (0, 5))
        with pytest.raises(
            ReadError, match=r"t\[0\]: nothing within 30 s; see that the brokers run"
        ):
            list(reader.read("t", 0))
        assert next(seconds) < 100
