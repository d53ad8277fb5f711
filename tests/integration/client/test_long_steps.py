"""Steps that take longer than the group's poll limit, on a real Kafka."""

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
from dalsegno.streams.client.attempt import Attempt
from dalsegno.streams.client.clocks import Clocks
from dalsegno.streams.client.config import ClientConfig, KafkaConfig, WorkerConfig
from dalsegno.streams.client.consumer import QueueConsumer, Taken
from dalsegno.streams.client.holding import Holding
from dalsegno.streams.client.marks import Seen
from dalsegno.streams.core.sequence import Sequence

pytestmark = pytest.mark.kafka

POLL_LIMIT_MS = 6_000


class Rig:
    """One queue, one slot, and a group that expels who does not poll for six seconds."""

    def __init__(self, kafka: EmbeddedKafka, prefix: str) -> None:
        config = ClientConfig.resolve(kafka.bootstrap, prefix)
        self.topic = config.topics.queue("default")
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic(self.topic, 1)])[self.topic].result(10)
        self.producer = Producer({"bootstrap.servers": kafka.bootstrap})
        self.holding = Holding[Attempt](1)
        self.taken: list[str] = []
        self.assigned = 0
        self.changed = threading.Condition()
        settings = WorkerConfig(session_timeout_ms=6_000).consumer(config, "w", self.topic, "w")
        self.consumer = QueueConsumer(
            config,
            {**settings, "max.poll.interval.ms": POLL_LIMIT_MS},
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
        rig = self

        class Counting(Consumer):  # type: ignore[misc]
            def subscribe(self, topics: list[str], **callbacks: object) -> None:
                on_assign = callbacks["on_assign"]

                def counted(consumer: Consumer, partitions: list[TopicPartition]) -> None:
                    rig.assigned += 1
                    on_assign(consumer, partitions)  # type: ignore[operator]

                super().subscribe(topics, **{**callbacks, "on_assign": counted})

        return Counting(settings)

    def take(self, batch: list[Taken]) -> None:
        with self.changed:
            self.taken.extend(item.handoff.run_id for item in batch)
            self.changed.notify_all()

    def put(self, number: int) -> None:
        self.producer.produce(
            self.topic,
            codec.encode(handoff(run_id=f"r{number}")),
            headers={SEQUENCE: Sequence(number, 0, number).pack()},
        )
        self.producer.flush(10)

    def wait(self, count: int, limit_s: float) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: len(self.taken) >= count, limit_s)


@pytest.fixture
def rig(kafka: EmbeddedKafka, fresh_prefix: str) -> Iterator[Rig]:
    rig = Rig(kafka, fresh_prefix)
    yield rig
    rig.consumer.stop()


def test_a_step_longer_than_the_poll_limit_costs_no_rebalance_and_runs_once(rig: Rig) -> None:
    rig.put(1)
    rig.put(2)
    assert rig.wait(1, 30), "the first is taken"
    begun = rig.assigned
    assert not rig.wait(2, POLL_LIMIT_MS / 1_000 * 1.5), "the only slot is in use"
    rig.holding.give_back(1)
    assert rig.wait(2, 30), "the next is taken by the same member"
    assert rig.taken == ["r1", "r2"]
    assert rig.assigned == begun, "it was never expelled"
