"""What a body raises after its attempt was stopped is in no report, and seen all the same."""

from __future__ import annotations

import asyncio
import threading
from typing import cast

import pytest
from tests.unit.client.fakes import handoff

from dalsegno.client import BlockingContext, Context, Flow
from dalsegno.streams.client.attempt import Attempt, StopReason
from dalsegno.streams.client.clocks import Clocks
from dalsegno.streams.client.holding import Holding
from dalsegno.streams.client.outbox import Outbox
from dalsegno.streams.client.producer import OutRecord
from dalsegno.streams.client.reporter import Reporter
from dalsegno.streams.client.runner import Runner

BEGUN, STOPPED = threading.Event(), threading.Event()


class Sent:
    """Takes every report."""

    def __init__(self) -> None:
        self.records: list[OutRecord] = []

    async def send(self, record: OutRecord) -> None:
        self.records.append(record)


def stubborn() -> Flow:
    """Two bodies that fail when they are told to stop."""
    flow = Flow("f")

    @flow.step(reads=[], writes=[])
    async def waits(_ctx: Context) -> None:
        BEGUN.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("connection reset")

    @flow.step(reads=[], writes=[])
    def blocks(_ctx: BlockingContext) -> None:
        BEGUN.set()
        STOPPED.wait(60)
        raise OSError("connection reset")

    return flow


@pytest.mark.parametrize("name", ["waits", "blocks"])
async def test_what_a_body_raises_after_its_stop_is_not_reported_and_seen(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    BEGUN.clear()
    STOPPED.clear()
    holding: Holding[Attempt] = Holding(1)
    sent = Sent()
    reporter = Reporter("events", "w", "w", Clocks())
    runner = Runner(holding, cast(Outbox, sent), reporter, lambda _attempt: True, threads=1)
    step = stubborn().get(name)
    assert step is not None
    attempt = Attempt(handoff(step=name), step, 0, "")
    holding.reserve(1)
    holding.add(attempt)
    runner.start(attempt)
    assert await asyncio.to_thread(BEGUN.wait, 60)
    runner.stop(attempt, StopReason.SUPERSEDED)
    STOPPED.set()
    await runner.drain()
    runner.close()
    assert sent.records == []
    assert holding.free == 1
    assert f"attempt ('r', '{name}', 1) raised after its stop" in caplog.text
    assert "connection reset" in caplog.text
