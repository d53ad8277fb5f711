"""The connections of the liveness service come up however the broker behaves at the start."""

from __future__ import annotations

import pytest
from aiokafka.errors import KafkaConnectionError

from dalsegno.streams.agents.liveness_broker import KafkaLivenessBroker


class Client:
    """As aiokafka's: it starts once, and a broker that is away lets it not start at all."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.started = False

    async def start(self) -> None:
        assert not self.started, "Did you call `start` twice?"
        if self.failures:
            self.failures -= 1
            raise KafkaConnectionError
        self.started = True


@pytest.mark.parametrize(("consumer", "admin"), [(0, 2), (2, 0), (1, 2)])
async def test_a_start_that_failed_halfway_is_tried_again(consumer: int, admin: int) -> None:
    broker = object.__new__(KafkaLivenessBroker)
    one, other = Client(consumer), Client(admin)
    broker._consumer, broker._admin = one, other  # type: ignore[assignment]
    broker._reading = False
    for _ in range(consumer + admin):
        with pytest.raises(KafkaConnectionError):
            await broker.start()
    await broker.start()
    assert one.started
    assert other.started
