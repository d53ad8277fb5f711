"""A queue of one partition on a real Kafka, its consumer, and what that has taken."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.unit.client.fakes import handoff

from dalsegno.ops.embedded import EmbeddedKafka
from dalsegno.schemas import codec
from dalsegno.schemas.headers import SEQUENCE
from dalsegno.streams.client.attempt import Attempt
from dalsegno.streams.client.clocks import Clocks
from dalsegno.streams.client.config import ClientConfig, KafkaConfig, WorkerConfig
from dalsegno.streams.client.consumer import QueueConsumer, Taken
from dalsegno.streams.client.holding import Holding
from dalsegno.streams.client.marks import Seen
from dalsegno.streams.core.sequence import Sequence


class QueueRig:
    """`taken`: run ids, in the order in which they came."""

    def __init__(
        self,
        kafka: EmbeddedKafka,
        prefix: str,
        worker: WorkerConfig,
        *,
        slots: int = 100,
        **settings: object,
    ) -> None:
        self.config = ClientConfig.resolve(kafka.bootstrap, prefix)
        self.topic = self.config.topics.queue("default")
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic(self.topic, 1)])[self.topic].result(10)
        self.producer = Producer({"bootstrap.servers": kafka.bootstrap})
        self.holding = Holding[Attempt](slots)
        self.taken: list[str] = []
        self.changed = threading.Condition()
        self.consumer = QueueConsumer(
            self.config,
            {**worker.consumer(self.config, "w", self.topic, "w"), **settings},
            "default",
            holding=self.holding,
            seen=Seen(100),
            take=self.take,
            fenced=pytest.fail,
            broken=pytest.fail,
            clocks=Clocks(),
            factory=self.make,
        )
        self.consumer.start("w", 1, 0.0)

    def make(self, settings: KafkaConfig) -> Consumer:
        return Consumer(settings)

    def take(self, batch: list[Taken]) -> None:
        """In the consumer's thread: other threads do not get in between its polls."""
        with self.changed:
            self.taken += [item.handoff.run_id for item in batch]
            self.changed.notify_all()

    def put(self, number: int) -> None:
        self.producer.produce(
            self.topic,
            codec.encode(handoff(run_id=f"r{number}")),
            headers={SEQUENCE: Sequence(number, 0, number).pack()},
        )
        self.producer.flush(10)

    def wait(self, run_id: str, limit_s: float = 60.0) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: run_id in self.taken, limit_s)
