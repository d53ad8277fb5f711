"""A client of Kafka's is closed when nobody uses it any more, and not before."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from dalsegno.streams.agents.webhooks.feed import Feed
from dalsegno.streams.agents.webhooks.ledger import Ledger
from dalsegno.streams.agents.webhooks.service import WebhookService
from dalsegno.streams.engine.settings import EngineSettings


class Client:
    """A consumer whose commit takes its time; `broke`: it was closed meanwhile. `ended`: it is
    closed, or that waits.
    """

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.commits, self.goes_on = threading.Event(), threading.Event()
        self.closed = self.broke = False

    def commit(self, **_: object) -> None:
        self.commits.set()
        self.goes_on.wait(60)
        self.broke = self.closed

    def close(self) -> None:
        self.closed = True
        self.ended.set()


async def test_one_is_not_closed_under_a_commit_that_was_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would take the process with it."""
    feed, client = Feed(EngineSettings(bootstrap_servers="127.0.0.1:1"), "desk"), Client()
    feed._consumer = client  # type: ignore[assignment]
    saving = asyncio.create_task(feed.save({0: Ledger(5)}))
    await asyncio.to_thread(client.commits.wait, 60)
    saving.cancel()
    await asyncio.gather(saving, return_exceptions=True)

    class Saved(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            client.ended.set()
            return super().wait(timeout)

    events = SimpleNamespace(Event=Saved)
    monkeypatch.setattr("dalsegno.streams.agents.webhooks.feed.threading", events)
    closing = asyncio.create_task(feed.close())
    await asyncio.to_thread(client.ended.wait, 60)
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
