"""A partition of which nothing arrives although its log goes on, on a real Kafka.

librdkafka's own standstill cannot be had at will; a partition that is paused behind the consumer's
back looks the same from outside: no error, a membership in order, a growing log, and no message.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.integration.client.queue_rig import QueueRig

from dalsegno.ops.embedded import EmbeddedKafka
from dalsegno.streams.client import standstill
from dalsegno.streams.client.config import KafkaConfig, WorkerConfig
from dalsegno.streams.client.consumer import Taken

pytestmark = pytest.mark.kafka


class Rig(QueueRig):
    """Its partition is paused with the first batch that is taken."""

    def make(self, settings: KafkaConfig) -> Consumer:
        self.kafka_consumer = super().make(settings)
        return self.kafka_consumer

    def take(self, batch: list[Taken]) -> None:
        if not self.taken:
            self.kafka_consumer.pause([TopicPartition(self.topic, 0)])
        super().take(batch)


@pytest.fixture
def rig(kafka: EmbeddedKafka, fresh_prefix: str) -> Iterator[Rig]:
    rig = Rig(kafka, fresh_prefix, WorkerConfig())
    yield rig
    rig.consumer.stop()


def test_a_partition_that_stands_still_is_read_anew(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(standstill, "SILENT_S", 1.0)
    rig.put(1)
    assert rig.wait("r1")
    rig.put(2)  # the partition is paused by now
    assert rig.wait("r2"), "nothing noticed that the partition stands still"
    assert "it is read anew" in caplog.text
    rig.put(3)
    assert rig.wait("r3")
    assert set(rig.taken) == {"r1", "r2", "r3"}
