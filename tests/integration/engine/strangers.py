"""Records that no client of ours would send."""

from __future__ import annotations

from aiokafka import AIOKafkaProducer
from aiokafka.record.util import calc_crc32c

BAD_NAME = b"\xff\xfe\xff\xfe"


async def send_bad_header_name(bootstrap: str, topic: str, partition: int) -> None:
    """No client sends such a name: the bytes of a good one are replaced in a built batch."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        batch = producer.create_batch()
        batch.append(key=b"key", value=b"not an event", timestamp=None, headers=[("name", b"1")])
        data = bytearray(batch._build()).replace(b"name", BAD_NAME)
        data[17:21] = calc_crc32c(bytes(data[21:])).to_bytes(4, "big")
        batch._buffer = data
        await (await producer.send_batch(batch, topic, partition=partition))
