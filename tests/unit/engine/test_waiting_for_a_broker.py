"""An engine that waits for a broker says so, and does not fill its log with it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaException
from structlog.testing import capture_logs

from dalsegno.streams.engine import app, start
from dalsegno.streams.engine.app import Engine
from dalsegno.streams.engine.errors import BrokerLostError
from dalsegno.streams.engine.owners import OwnersView
from dalsegno.streams.engine.settings import EngineSettings
from dalsegno.streams.engine.topics_admin import TopicAdmin


async def test_a_broker_that_is_away_is_told_of_once_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop, now_s, tries = asyncio.Event(), [0.0], 0

    def ping(self: TopicAdmin) -> None:
        nonlocal tries
        tries += 1
        now_s[0] += 1.0
        if tries > 130:
            stop.set()
        raise KafkaException("nobody there")

    monkeypatch.setattr(TopicAdmin, "ping", ping)
    monkeypatch.setattr(start, "_BROKER_RETRY_S", 0.0)
    monkeypatch.setattr(start, "_now_s", lambda: now_s[0])
    with capture_logs() as lines:
        assert not await start.wait_for_broker(EngineSettings(), stop)
    assert tries == 131
    assert [line["event"] for line in lines] == ["no broker yet"] * 3
    assert "nobody there" in lines[0]["error"]


async def answered(*_: object) -> bool:
    return True


async def unanswered(*_: object) -> bool:
    raise TimeoutError


async def test_a_broker_that_answers_late_is_waited_for_and_no_fault_of_the_data_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A start that is refused is not tried again."""
    engine = Engine(EngineSettings(), lambda *_: None, None, monitors=None)  # type: ignore[arg-type]

    def late(*_: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(app, "open_tier", late)
    with pytest.raises(BrokerLostError):
        await engine._warm()
    stop: Any = SimpleNamespace(requested=asyncio.Event())
    monkeypatch.setattr(app, "wait_for_broker", answered)
    monkeypatch.setattr(app, "ready_topics", unanswered)
    with pytest.raises(BrokerLostError):
        await engine._prepare(stop, OwnersView(EngineSettings()))
