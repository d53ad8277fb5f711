"""A partition of which nothing arrives although its log goes on, on a real Kafka.

librdkafka's own standstill cannot be had at will; a partition that is paused behind the consumer's
back looks the same from outside: no error, a membership in order, a growing log, and no message.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.unit.client.fakes import handoff

from dalsegno.ops.embedded import EmbeddedKafka
from dalsegno.schemas import codec
from dalsegno.schemas.headers import SEQUENCE
from dalsegno.streams.client import standstill
from dalsegno.streams.client.attempt import Attempt
from dalsegno.streams.client.clocks import Clocks
from dalsegno.streams.client.config import ClientConfig, KafkaConfig, WorkerConfig
from dalsegno.streams.client.consumer import QueueConsumer, Taken
from dalsegno.streams.client.holding import Holding
from dalsegno.streams.client.marks import Seen
from dalsegno.streams.core.sequence import Sequence

pytestmark = pytest.mark.kafka

WAIT_S = 30


class Rig:
    """One queue of one partition, its consumer, and what that has taken."""

    def __init__(self, kafka: EmbeddedKafka, prefix: str) -> None:
        self.config = ClientConfig.resolve(kafka.bootstrap, prefix)
        self.topic = self.config.topics.queue("default")
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic(self.topic, 1)])[self.topic].result(10)
        self.producer = Producer({"bootstrap.servers": kafka.bootstrap})
        self.taken: set[str] = set()
        self.changed = threading.Condition()
        settings = WorkerConfig().consumer(self.config, "w", self.topic, "w")
        self.consumer = QueueConsumer(
            self.config,
            settings,
            "default",
            holding=Holding[Attempt](100),
            seen=Seen(100),
            take=self.take,
            fenced=pytest.fail,
            broken=pytest.fail,
            clocks=Clocks(),
            factory=self.make,
        )
        self.consumer.start("w", 1, 0.0)

    def make(self, settings: KafkaConfig) -> Consumer:
        self.kafka_consumer = Consumer(settings)
        return self.kafka_consumer

    def take(self, batch: list[Taken]) -> None:
        """In the consumer's thread: other threads do not get in between its polls."""
        if not self.taken:
            self.kafka_consumer.pause([TopicPartition(self.topic, 0)])
        with self.changed:
            self.taken.update(item.handoff.run_id for item in batch)
            self.changed.notify_all()

    def put(self, number: int) -> None:
        self.producer.produce(
            self.topic,
            codec.encode(handoff(run_id=f"r{number}")),
            headers={SEQUENCE: Sequence(number, 0, number).pack()},
        )
        self.producer.flush(10)

    def wait(self, run_id: str) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: run_id in self.taken, WAIT_S)


@pytest.fixture
def rig(kafka: EmbeddedKafka, fresh_prefix: str) -> Iterator[Rig]:
    rig = Rig(kafka, fresh_prefix)
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
    assert rig.taken == {"r1", "r2", "r3"}
