"""A courier's own faults cost nobody anything and are seen. No broker is up here."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka import Message as Record
from tests.unit.agents.webhooks.packages import package

from dalsegno.schemas import headers
from dalsegno.schemas.codec import encode
from dalsegno.schemas.control import Webhook
from dalsegno.schemas.outputs import Escalation
from dalsegno.streams.agents.webhooks import courier as module
from dalsegno.streams.agents.webhooks.courier import Courier, Means
from dalsegno.streams.agents.webhooks.ledger import Ledger
from dalsegno.streams.agents.webhooks.message import Message
from dalsegno.streams.agents.webhooks.posting import new_session
from dalsegno.streams.agents.webhooks.target import Target
from dalsegno.streams.core.sequence import Sequence
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


async def test_a_package_that_makes_no_message_costs_only_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def message_of(package: Escalation) -> Message:
        if package.step == "bad":
            raise RuntimeError("not this one")
        return real(package)

    real = module.message_of
    monkeypatch.setattr(module, "message_of", message_of)
    metrics = EngineMetrics()
    settings = EngineSettings(bootstrap_servers="127.0.0.1:1")
    async with new_session() as session:
        courier = Courier(HOOK, Means(settings, metrics, session, lambda: 0.5, lambda: 0.0))
        ledger = courier._ledgers[0] = Ledger(0)
        for offset, step in enumerate(("bad", "s0", "s1")):
            courier._take(record(offset, package(step=step)))
        courier._take(record(3, package(step="s1"), count=3))
        courier._take(record(4, None))
        assert [waiting.package.step for waiting in courier.target] == ["s0", "s1"]
        assert ledger.base == 1, "what cannot be posted is behind us"
        del courier._ledgers[0]
        await courier.close()
    text = metrics.text()
    assert b'dalsegno_webhook_dropped_total{reason="given_up",webhook="desk"} 1.0' in text


def record(offset: int, made: Escalation | None, count: int = 0) -> Record:
    value = b"no record of ours" if made is None else encode(made)
    sequence = Sequence(offset, 0, count or offset + 1).pack()
    return Record(
        topic="escalations", partition=0, offset=offset, value=value,
        headers=[(headers.SEQUENCE, sequence)],
    )  # fmt: skip
