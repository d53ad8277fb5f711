"""A courier's own faults cost nobody anything and are seen. No broker is up here."""

from __future__ import annotations

import asyncio

import pytest

from dalsegno.schemas.control import Webhook
from dalsegno.streams.agents.webhooks import courier as module
from dalsegno.streams.agents.webhooks.courier import Courier, Means
from dalsegno.streams.agents.webhooks.posting import new_session
from dalsegno.streams.agents.webhooks.target import Target
from dalsegno.streams.engine.metrics import EngineMetrics
from dalsegno.streams.engine.settings import EngineSettings

HOOK = Webhook(name="desk", url="https://desk.invalid/in", key_id="k1")


async def test_a_fault_of_our_own_is_counted_seen_and_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R119: an exception was swallowed and everything looked well."""
    calls: list[float] = []
    thrice = asyncio.Event()

    def raises(_: Target, now_s: float) -> None:
        calls.append(now_s)
        if len(calls) == 3:
            thrice.set()
        raise RuntimeError("not today")

    monkeypatch.setattr(Target, "next", raises)
    monkeypatch.setattr(module, "_AFTER_FAILURE_S", 0.01)
    metrics = EngineMetrics()
    settings = EngineSettings(bootstrap_servers="127.0.0.1:1")
    async with new_session() as session:
        courier = Courier(HOOK, Means(settings, metrics, session, lambda: 0.5, lambda: 0.0))
        await asyncio.wait_for(thrice.wait(), 20)
        await courier.close()
    assert b'dalsegno_webhook_posts_total{result="error",webhook="desk"}' in metrics.text()
