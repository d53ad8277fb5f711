"""Steps that take longer than the group's poll limit, on a real Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.integration.client.queue_rig import QueueRig

from dalsegno.ops.embedded import EmbeddedKafka
from dalsegno.streams.client.config import KafkaConfig, WorkerConfig

pytestmark = pytest.mark.kafka

POLL_LIMIT_MS = 6_000


class Rig(QueueRig):
    """One slot, and a group that expels who does not poll for six seconds."""

    def __init__(self, kafka: EmbeddedKafka, prefix: str) -> None:
        self.assigned = 0
        worker = WorkerConfig(session_timeout_ms=6_000)
        super().__init__(kafka, prefix, worker, slots=1, **{"max.poll.interval.ms": POLL_LIMIT_MS})

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


@pytest.fixture
def rig(kafka: EmbeddedKafka, fresh_prefix: str) -> Iterator[Rig]:
    rig = Rig(kafka, fresh_prefix)
    yield rig
    rig.consumer.stop()


def test_a_step_longer_than_the_poll_limit_costs_no_rebalance_and_runs_once(rig: Rig) -> None:
    rig.put(1)
    rig.put(2)
    assert rig.wait("r1"), "the first is taken"
    begun = rig.assigned
    assert not rig.wait("r2", POLL_LIMIT_MS / 1_000 * 1.5), "the only slot is in use"
    rig.holding.give_back(1)
    assert rig.wait("r2"), "the next is taken by the same member"
    assert rig.taken == ["r1", "r2"]
    assert rig.assigned == begun, "it was never expelled"
