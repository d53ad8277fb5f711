"""What the rule that the first output goes alone rests on (`streams/engine/outputs.py`)."""

from __future__ import annotations

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import InitProducerIdRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from dalsegno.ops.embedded import EmbeddedKafka
from dalsegno.ops.embedded.topics import create_topics

pytestmark = pytest.mark.kafka
OUT_OF_ORDER_SEQUENCE = 45


def batch(producer_id: int, epoch: int, sequence: int) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=0, producer_id=producer_id,
        producer_epoch=epoch, base_sequence=sequence, batch_size=1_000,
    )  # fmt: skip
    builder.append(0, timestamp=1, key=b"k", value=b"%d" % sequence, headers=[])
    return bytes(builder.build())


async def test_a_broker_takes_any_batch_of_a_producer_that_it_does_not_know(
    kafka: EmbeddedKafka, fresh_prefix: str
) -> None:
    """Once it knows the producer, it refuses a batch whose predecessor is missing."""
    topic = f"{fresh_prefix}-unknown"
    create_topics(kafka.bootstrap, {topic: 1})
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap)
    await producer.start()
    try:
        client, place = producer.client, TopicPartition(topic, 0)
        await producer.partitions_for(topic)
        node = client.cluster.leader_for_partition(place)
        given = await client.send(node, InitProducerIdRequest(None, 60_000))
        while given.error_code:  # a broker that has just started
            given = await client.send(node, InitProducerIdRequest(None, 60_000))

        async def code_of(sequence: int) -> int:
            data = batch(given.producer_id, given.producer_epoch, sequence)
            asked = ProduceRequest(None, -1, 5_000, [(topic, [(0, data)])])
            answer = await client.send(node, asked)
            return int(answer.topics[0][1][0][1])

        assert await code_of(7) == 0, "the batches 0 to 6 are missing"
        assert await code_of(0) == OUT_OF_ORDER_SEQUENCE, "and can never be appended any more"
        assert await code_of(9) == OUT_OF_ORDER_SEQUENCE
        assert await code_of(8) == 0
    finally:
        await producer.stop()
