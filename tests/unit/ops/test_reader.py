"""Reading a partition from a broker that has more, and does not give it."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError

from dalsegno.ops.kafka import reader as module
from dalsegno.ops.kafka.reader import Reader, ReadError
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
