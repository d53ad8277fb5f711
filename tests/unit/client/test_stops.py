"""A stop, of the worker or of one attempt, loses nothing that is under way."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal

import pytest
from tests.unit.client.fakes import handoff

from dalsegno.client import Context, Flow, WorkerConfig
from dalsegno.schemas import codec
from dalsegno.schemas.events import FailureType, StepFailed
from dalsegno.schemas.outputs import Answer, AnswerType
from dalsegno.streams.client.attempt import StopReason
from dalsegno.streams.client.clocks import Clocks
from dalsegno.streams.client.config import ClientConfig
from dalsegno.streams.client.consumer import Taken
from dalsegno.streams.client.errors import DeliveryFailed
from dalsegno.streams.client.naming import WorkerName
from dalsegno.streams.client.producer import Done, OutRecord, Receipt
from dalsegno.streams.client.session import Session, WorkerCounts

Body = Callable[[Context], Awaitable[None]]


@dataclass
class Log:
    """Stands for the producer. Acknowledges at once, or what it is told to hold when told to."""

    holds: str = ""
    refuses: str = ""
    kinds: list[str] = field(default_factory=list)
    last: object = None
    held: list[tuple[OutRecord, Done]] = field(default_factory=list)

    def send(self, record: OutRecord, done: Done) -> None:
        self.last = codec.decode(record.value)
        kind = type(self.last).__name__
        self.kinds.append(kind)
        if kind == self.holds:
            self.held.append((record, done))
        else:
            done(Receipt(record.topic, record.partition, len(self.kinds), 0), None)

    def let_go(self) -> None:
        for record, done in self.held:
            if self.refuses:
                failed = DeliveryFailed(record.topic, record.key, self.refuses, "")
                done(None, failed)
            else:
                done(Receipt(record.topic, record.partition, len(self.kinds), 0), None)
        self.held.clear()


def session_of(log: Log, body: Body, unknown: Literal["retry", "check"] = "retry") -> Session:
    flow = Flow("f")
    flow.step(name="s", reads=[], writes=[], unknown=unknown)(body)
    step = flow.get("s")
    assert step is not None
    session = Session(
        ClientConfig(bootstrap_servers="nowhere:9"),
        WorkerConfig(concurrency=1),
        clocks=Clocks(lease_s=lambda: 100.0),
        steps={("f", 1, "s"): step},
        name=WorkerName("w", None, -1),  # type: ignore[arg-type]
        producer=log,  # type: ignore[arg-type]
        counts=WorkerCounts(),
        encode=codec.encode,  # type: ignore[arg-type]
    )
    session._heartbeats = session._make_heartbeats()
    session._heartbeats.start()
    return session


def take(session: Session) -> None:
    """As the consumer's thread does once its commit is certain."""
    assert session._holding.reserve(1) == 1
    session._take([Taken(handoff(inputs=b"\x80"), 0, "")])


@pytest.mark.parametrize("refuses", ["", "_MSG_TIMED_OUT"])
async def test_a_stop_waits_for_a_start_that_is_under_way(refuses: str) -> None:
    log = Log(holds="StepStarted", refuses=refuses)

    async def body(_ctx: Context) -> None:
        for _ in range(1_000):
            await asyncio.sleep(0)

    session = session_of(log, body)
    runner = session._runner
    drain, close = runner.drain, runner.close

    async def drained() -> None:
        await drain()
        asyncio.get_running_loop().call_soon(log.let_go)

    def closed() -> None:
        log.kinds.append("closed")
        close()

    runner.drain = drained  # type: ignore[method-assign]
    runner.close = closed  # type: ignore[method-assign]
    take(session)
    await session.close()
    end = "StepReleased" if refuses else "StepCompleted"
    assert log.kinds == ["StepStarted", end, "closed"]
    assert session._holding.free == 1


@pytest.mark.parametrize("reason", ["too_many_effects", "undo_too_large", "result_too_large"])
async def test_an_effect_that_the_journal_does_not_take_is_the_last_of_its_attempt(
    reason: str,
) -> None:
    """Nobody would know of the next ones: not the next attempt, and not who takes them back."""
    log, confirmed, told = Log(), asyncio.Event(), asyncio.Event()
    done: list[int] = []

    async def body(ctx: Context) -> None:
        await ctx.effect("e", done.append, 1)
        confirmed.set()
        await told.wait()
        await ctx.effect("e", done.append, 2)

    session = session_of(log, body)
    take(session)
    await confirmed.wait()
    answer = Answer(
        reply_to="w", run_id="r", answer=AnswerType.REFUSED, step="s", epoch=1,
        kind="EffectIntended", reason=reason, detail="the policy allows 10000",
    )  # fmt: skip
    session._answered(answer)
    told.set()
    await session.close()
    assert done == [1]
    assert log.kinds == ["StepStarted", "EffectIntended", "EffectConfirmed", "StepFailed"]
    failed = log.last
    assert isinstance(failed, StepFailed)
    assert failed.failure_type is FailureType.PERMANENT
    assert reason in failed.message
    assert "10000" in failed.message


async def test_an_answer_that_comes_again_permits_no_other_effect() -> None:
    """An engine that was restored sends its answers again; they do not name their effects."""
    log, asks = Log(), asyncio.Event()
    done: list[int] = []

    async def body(ctx: Context) -> None:
        await ctx.effect("e", done.append, 1)
        asks.set()
        await ctx.effect("e", done.append, 2)

    session = session_of(log, body, unknown="check")

    def answer(says: AnswerType, place: int, reason: str = "") -> None:
        session._answered(
            Answer(
                reply_to="w", run_id="r", answer=says, step="s", epoch=1,
                kind="EffectIntended", reason=reason,
            ),
            place,
        )  # fmt: skip

    def asked() -> int:
        return log.kinds.count("EffectIntended")

    take(session)
    for _ in range(100):
        await asyncio.sleep(0)
    assert asked() == 1
    answer(AnswerType.ACCEPTED, 2)  # where the question stands: behind the start
    await asks.wait()
    for _ in range(100):
        await asyncio.sleep(0)
    assert asked() == 2
    answer(AnswerType.ACCEPTED, 2)
    for _ in range(100):
        await asyncio.sleep(0)
    assert done == [1]
    answer(AnswerType.REFUSED, 4, "already_confirmed")
    await session.close()
    assert done == [1]


@pytest.mark.parametrize("in_effect", [False, True])
async def test_a_cancellation_that_nobody_asked_for_is_a_failure_of_the_body(
    in_effect: bool,
) -> None:
    """As where it awaits a task of its own that was cancelled. Else only its silence would tell."""
    log = Log()

    async def act() -> None:
        other = asyncio.ensure_future(asyncio.Event().wait())
        other.cancel()
        await other

    async def body(ctx: Context) -> None:
        await (ctx.effect("e", act) if in_effect else act())

    session = session_of(log, body)
    take(session)
    await session.close()
    assert isinstance(log.last, StepFailed)
    assert log.last.failure_type is FailureType.TRANSIENT
    assert "CancelledError" in log.last.error_class
    assert session._holding.free == 1


async def test_a_body_that_ends_the_process_ends_only_itself() -> None:
    log = Log()

    async def body(_ctx: Context) -> None:
        sys.exit(3)

    session = session_of(log, body)
    take(session)
    await session.close()
    assert isinstance(log.last, StepFailed)
    assert log.last.error_class == "SystemExit"


async def test_an_attempt_that_is_stopped_twice_finishes_its_effect_and_frees_its_slot() -> None:
    log = Log()
    acts, acted = asyncio.Event(), asyncio.Event()

    async def act() -> None:
        acts.set()
        await acted.wait()

    async def body(ctx: Context) -> None:
        await ctx.effect("e", act)

    session = session_of(log, body)
    take(session)
    await acts.wait()
    (attempt,) = session._holding.all()
    assert attempt.task is not None
    for _ in range(3):  # one answer to each of its reports, and each tick without a lease
        session._stop_all([attempt], StopReason.SUPERSEDED)
        for _ in range(10):
            await asyncio.sleep(0)
    assert session._holding.free == 0
    acted.set()
    await asyncio.wait([attempt.task])
    assert log.kinds == ["StepStarted", "EffectIntended", "EffectConfirmed"]
    assert session._holding.free == 1
    await session.close()


@pytest.mark.parametrize("reason", list(StopReason))
@pytest.mark.parametrize("between_tries", [False, True])
async def test_a_report_of_a_stopped_attempt_is_owed_only_if_its_worker_stops(
    reason: StopReason, between_tries: bool
) -> None:
    """Else a clean stop, hours later, would end as if it had lost it."""
    log = Log(holds="StepCompleted", refuses="_MSG_TIMED_OUT")

    async def body(_ctx: Context) -> None:
        return None

    session = session_of(log, body)
    take(session)
    (attempt,) = session._holding.all()
    for _ in range(100):
        await asyncio.sleep(0)
    assert attempt.task is not None
    owed = session._outbox._undelivered
    assert len(owed) == 1
    if between_tries:
        log.let_go()
        for _ in range(10):
            await asyncio.sleep(0)
    session._stop_all([attempt], reason)
    await asyncio.wait([attempt.task])
    log.let_go()  # nobody waits for what is told now
    await asyncio.sleep(0)
    assert len(owed) == (reason is StopReason.SHUTDOWN)
    await session.close()
