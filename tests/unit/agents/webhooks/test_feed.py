"""A client of Kafka's is closed when nobody uses it any more, and not before."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from dalsegno.streams.agents.webhooks.feed import Feed
from dalsegno.streams.agents.webhooks.ledger import Ledger
from dalsegno.streams.agents.webhooks.service import WebhookService
from dalsegno.streams.engine.settings import EngineSettings


class Client:
    """A consumer whose commit takes its time; `broke`: it was closed meanwhile."""

    def __init__(self) -> None:
        self.commits, self.goes_on = threading.Event(), threading.Event()
        self.closed = self.broke = False

    def commit(self, **_: object) -> None:
        self.commits.set()
        self.goes_on.wait(60)
        self.broke = self.closed

    def close(self) -> None:
        self.closed = True


async def test_one_is_not_closed_under_a_commit_that_was_given_up() -> None:
    """It would take the process with it."""
    feed, client = Feed(EngineSettings(bootstrap_servers="127.0.0.1:1"), "desk"), Client()
    feed._consumer = client  # type: ignore[assignment]
    saving = asyncio.create_task(feed.save({0: Ledger(5)}))
    await asyncio.to_thread(client.commits.wait, 60)
    saving.cancel()
    await asyncio.gather(saving, return_exceptions=True)
    closing = asyncio.create_task(feed.close())
    for _ in range(5):
        await asyncio.sleep(0)
    # Behind whatever its thread was told: this ends at once where nothing waits for the commit.
    behind = asyncio.create_task(feed._thread.run(lambda: None))
    await asyncio.wait([behind], timeout=0.2)
    client.goes_on.set()
    await closing
    assert client.closed
    assert not client.broke


async def test_a_courier_that_fails_to_end_leaves_no_other_posting() -> None:
    class Courier:
        def __init__(self) -> None:
            self.closed = False

        async def close(self) -> None:
            self.closed = True
            raise RuntimeError("not closed")

    service = WebhookService(None)  # type: ignore[arg-type]
    couriers: list[Any] = [Courier(), Courier()]
    service._couriers = dict(enumerate(couriers))  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="not closed"):
        await service.close()
    assert all(courier.closed for courier in couriers)
