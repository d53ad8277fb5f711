"""A slot is an attempt's until its body and what that has begun have ended, and then at once."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.client.fakes import handoff
from tests.unit.client.test_effects import entry

from dalsegno.client import BlockingContext, Context, Flow
from dalsegno.schemas.events import EffectIntended, RunEvent
from dalsegno.schemas.outputs import Answer, AnswerType, EffectStatus
from dalsegno.streams.client.attempt import Attempt, StopReason
from dalsegno.streams.client.errors import DeliveryFailed
from dalsegno.streams.client.holding import Holding
from dalsegno.streams.client.producer import Receipt
from dalsegno.streams.client.runner import Runner


class Rig:
    """A runner with one slot, whose every report is acknowledged and every effect permitted."""

    def __init__(self, body: Callable[..., object], **changes: object) -> None:
        flow = Flow("f")
        flow.step(name="s", reads=["a"], writes=["x"], unknown="check")(body)  # type: ignore[call-overload]
        step = flow.get("s")
        assert step is not None
        self.reported: list[str] = []
        self.refused = False
        self.holding: Holding[Attempt] = Holding(1)
        reporter: Any = SimpleNamespace(
            stamp=lambda event: event, record=lambda event, _partition: event, wall_ms=lambda: 0
        )
        outbox: Any = SimpleNamespace(send=self.send)
        self.runner = Runner(self.holding, outbox, reporter, lambda _attempt: True, threads=1)
        self.attempt = Attempt(handoff(**changes), step, 0, "")
        self.holding.reserve(1)
        self.holding.add(self.attempt)
        self.runner.start(self.attempt)

    async def send(self, event: RunEvent) -> Receipt:
        self.reported.append(type(event).__name__)
        if self.refused:
            raise DeliveryFailed("events", b"r", "MSG_SIZE_TOO_LARGE", "too large", False)
        if isinstance(event, EffectIntended):
            accepted = Answer(
                reply_to="w", run_id="r", step="s", epoch=1, kind="EffectIntended",
                answer=AnswerType.ACCEPTED,
            )  # fmt: skip
            asyncio.get_running_loop().call_soon(self.runner.answer, accepted)
        return Receipt("events", 0, len(self.reported), 1)

    async def until(self, met: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not met():  # noqa: ASYNC110 - some of it happens in threads
                await asyncio.sleep(0)

    async def stop_twice(self) -> None:
        """Once for what the service says, and again when its lease has run out meanwhile."""
        for reason in (StopReason.SUPERSEDED, StopReason.LEASE):
            self.runner.stop(self.attempt, reason)
            for _ in range(20):
                await asyncio.sleep(0)


async def test_a_plain_body_that_asks_its_effects_check_does_not_wait_for_its_own_thread() -> None:
    def body(ctx: BlockingContext) -> dict[str, object]:
        return {"x": ctx.effect("pay", lambda: 1, check=lambda: {"found": 7})}

    rig = Rig(body, effects=(entry("pay", 0, EffectStatus.UNKNOWN),))
    await rig.until(lambda: rig.holding.free == 1)
    assert rig.reported[-1] == "StepCompleted"
    rig.runner.close()


async def holding_its_thread() -> tuple[Rig, threading.Event]:
    """A plain body that has begun, and what lets it return."""
    began, goes_on = threading.Event(), threading.Event()

    def body(_ctx: BlockingContext) -> None:
        began.set()
        goes_on.wait(60)

    rig = Rig(body)
    await rig.until(began.is_set)
    return rig, goes_on


async def test_a_plain_body_keeps_its_slot_until_it_returns_however_often_it_is_stopped() -> None:
    rig, goes_on = await holding_its_thread()
    await rig.stop_twice()
    assert rig.holding.free == 0, "its thread is still taken"
    goes_on.set()
    await rig.until(lambda: rig.holding.free == 1)
    rig.runner.close()


async def test_an_attempt_that_is_stopped_twice_during_an_effect_gives_its_slot_back() -> None:
    began, goes_on = asyncio.Event(), asyncio.Event()

    async def act() -> int:
        began.set()
        await goes_on.wait()
        return 1

    async def body(ctx: Context) -> None:
        await ctx.effect("pay", act)

    rig = Rig(body)
    await rig.until(began.is_set)
    await rig.stop_twice()
    assert rig.holding.free == 0, "the effect is not confirmed yet"
    goes_on.set()
    await rig.until(lambda: rig.attempt.task is not None and rig.attempt.task.done())
    assert rig.holding.free == 1
    assert rig.reported[-1] == "EffectConfirmed"
    rig.runner.close()


async def test_an_attempt_that_is_stopped_before_its_body_begins_gives_its_slot_back() -> None:
    begun: list[int] = []

    async def body(_ctx: Context) -> None:
        begun.append(1)

    rig = Rig(body)
    rig.runner.stop(rig.attempt, StopReason.SUPERSEDED)  # in the very turn of the loop
    await rig.until(lambda: rig.attempt.task is not None and rig.attempt.task.done())
    await rig.until(lambda: rig.holding.free == 1)
    assert not begun
    assert rig.holding.all() == []
    rig.runner.close()


async def test_an_attempt_that_can_report_nothing_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def body(_ctx: Context) -> None:
        rig.refused = True

    with caplog.at_level(logging.ERROR, "dalsegno.worker"):
        rig = Rig(body)
        await rig.until(lambda: rig.holding.free == 1)
    assert rig.reported == ["StepCompleted", "StepFailed"]
    assert "without a report" in caplog.text
    rig.runner.close()


async def test_at_the_end_of_a_session_nothing_is_waited_for() -> None:
    rig, goes_on = await holding_its_thread()
    rig.runner.stop(rig.attempt, StopReason.SHUTDOWN)
    rig.runner.close()
    task = rig.attempt.task
    assert task is not None
    await asyncio.sleep(0)
    task.cancel()  # as a loop does that is closed
    await rig.until(task.done)
    goes_on.set()
