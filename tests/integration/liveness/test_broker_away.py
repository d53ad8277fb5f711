"""The monitors' clients when the broker is gone: nothing of theirs stays behind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from dalsegno.ops.embedded import EmbeddedKafka
from dalsegno.schemas.liveness import Canary
from dalsegno.streams.agents.liveness_broker import KafkaLivenessBroker
from dalsegno.streams.engine.settings import EngineSettings

pytestmark = pytest.mark.kafka


async def test_a_close_without_a_broker_leaves_no_task_behind(tmp_path: Path) -> None:
    kafka = EmbeddedKafka(tmp_path / "kafka").start()
    try:
        settings = EngineSettings(
            bootstrap_servers=kafka.bootstrap, name="e", request_timeout_ms=500
        )
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        for made in admin.create_topics([NewTopic(settings.topics.heartbeats, 4)]).values():
            made.result(10)
        broker = KafkaLivenessBroker(settings)
        await broker.start()
        await broker.canary(Canary(partition=0, monitor="e", number=1))
        kafka.kill()
        for partition in range(1, 4):
            try:
                async with asyncio.timeout(1):
                    await broker.canary(Canary(partition=partition, monitor="e", number=2))
            except (TimeoutError, OSError):
                continue
        await broker.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert left == set()
    finally:
        kafka.stop()
