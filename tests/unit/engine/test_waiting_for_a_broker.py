"""An engine that waits for a broker says so, and does not fill its log with it."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka import KafkaException
from structlog.testing import capture_logs

from dalsegno.streams.engine import start
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
