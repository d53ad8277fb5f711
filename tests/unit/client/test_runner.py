"""What the runner keeps a body from, and what it does with what the body raises after its stop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
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


def runner_of(
    holding: Holding[Attempt], sent: Sent, lease_holds: Callable[[Attempt], bool]
) -> Runner:
    reporter = Reporter("events", "w", "w", Clocks())
    return Runner(holding, cast(Outbox, sent), reporter, lease_holds, threads=1)


def started(runner: Runner, holding: Holding[Attempt], flow: Flow, name: str) -> Attempt:
    step = flow.get(name)
    assert step is not None
    attempt = Attempt(handoff(step=name), step, 0, "")
    holding.reserve(1)
    holding.add(attempt)
    runner.start(attempt)
    return attempt


async def test_an_effect_is_not_begun_once_the_lease_has_run_out() -> None:
    flow, acted = Flow("f"), []
    covered = True

    @flow.step(reads=[], writes=[])
    async def pay(ctx: Context) -> None:
        nonlocal covered
        covered = False  # a pause of the process, for longer than its heartbeats reach
        await ctx.effect("pay", lambda: acted.append("paid"))

    holding: Holding[Attempt] = Holding(1)
    sent = Sent()
    runner = runner_of(holding, sent, lambda _attempt: covered)
    attempt = started(runner, holding, flow, "pay")
    await runner.drain()
    runner.close()
    assert acted == []
    assert attempt.stopped is StopReason.LEASE
    assert sent.records == [], "neither an intent nor an end is reported by who may not act"


@pytest.mark.parametrize("name", ["waits", "blocks"])
async def test_what_a_body_raises_after_its_stop_is_not_reported_and_seen(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    BEGUN.clear()
    STOPPED.clear()
    holding: Holding[Attempt] = Holding(1)
    sent = Sent()
    runner = runner_of(holding, sent, lambda _attempt: True)
    attempt = started(runner, holding, stubborn(), name)
    assert await asyncio.to_thread(BEGUN.wait, 60)
    runner.stop(attempt, StopReason.SUPERSEDED)
    STOPPED.set()
    await runner.drain()
    runner.close()
    assert sent.records == []
    assert holding.free == 1
    assert f"attempt ('r', '{name}', 1) raised after its stop" in caplog.text
    assert "connection reset" in caplog.text
