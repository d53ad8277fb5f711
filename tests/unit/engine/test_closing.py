"""What an engine closes is closed whole: nothing is cut short, nothing left out."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from dalsegno.streams.engine import actor, opening
from dalsegno.streams.engine import app as engine_app
from dalsegno.streams.engine.app import Engine
from dalsegno.streams.engine.archive_settings import ArchiveSettings
from dalsegno.streams.engine.closing import close_each
from dalsegno.streams.engine.context import Layout
from dalsegno.streams.engine.encoding import OutRecord
from dalsegno.streams.engine.errors import EngineError, OutcomeUnknownError
from dalsegno.streams.engine.metrics import EngineMetrics
from dalsegno.streams.engine.owners import OwnersView
from dalsegno.streams.engine.ownership import Ownership
from dalsegno.streams.engine.producers import IdempotentProducer, ProducerPool
from dalsegno.streams.engine.restore import RestoreProgress
from dalsegno.streams.engine.settings import EngineSettings
from dalsegno.streams.engine.stopping import StopSignals

SETTINGS = EngineSettings(bootstrap_servers="127.0.0.1:1")


class Part:
    """Of an engine. `opens`: what its closing waits for. `fails`: it raises then."""

    number = 0
    state = "ready"
    checkpointer = None

    def __init__(self, *, fails: bool = False) -> None:
        self.opens = asyncio.Event()
        self.began = False
        self.closed = False
        self._fails = fails

    async def settle(self, _timeout_s: float) -> None:
        """It has nothing to write."""

    async def close(self) -> None:
        self.began = True
        await self.opens.wait()
        self.closed = True
        if self._fails:
            raise RuntimeError("not closed")


def ownership() -> Ownership:
    context: Any = SimpleNamespace(
        settings=SimpleNamespace(
            restores_at_once=1, stop_timeout_ms=10_000, archive=ArchiveSettings()
        ),
        metrics=EngineMetrics(),
        joined=lambda: SimpleNamespace(wake=lambda: None),
        intake=SimpleNamespace(read=None),
    )
    return Ownership(context, asyncio.get_running_loop())


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def revoked(owned: Ownership, part: Any) -> None:
    owned.tasks[0] = part
    owned.assigned(set())


def rebuilt(owned: Ownership, part: Any) -> None:
    owned.tasks[0] = part
    owned.lost(part, OutcomeUnknownError("a checkpoint"))


@pytest.mark.parametrize("begins", [revoked, rebuilt])
async def test_a_partition_that_is_being_closed_when_the_engine_stops_is_closed_whole(
    begins: Callable[[Ownership, Part], None],
) -> None:
    owned, part = ownership(), Part()
    begins(owned, part)
    await settle()
    assert part.began
    stopping = asyncio.create_task(owned.close())
    await settle()
    assert not stopping.done()
    part.opens.set()
    await stopping
    assert part.closed


async def test_what_fails_while_it_closes_beside_the_stop_is_said() -> None:
    owned, part = ownership(), Part(fails=True)
    revoked(owned, part)
    stopping = asyncio.create_task(owned.close())
    await settle()
    part.opens.set()
    with pytest.raises(BaseExceptionGroup, match="not closed cleanly"):
        await stopping


async def test_a_follower_of_the_owners_that_has_failed_is_closed_all_the_same() -> None:
    view = OwnersView(SETTINGS)
    consumer = SimpleNamespace(stopped=False)

    async def stop() -> None:
        consumer.stopped = True

    async def fails() -> None:
        raise RuntimeError("not what Kafka says")

    consumer.stop = stop
    view._consumer, view._task = consumer, asyncio.create_task(fails())  # type: ignore[assignment]
    await settle()
    await view.close()
    assert consumer.stopped


async def test_a_reader_of_the_owners_that_does_not_stop_is_said_to(
    capsys: pytest.CaptureFixture[str],
) -> None:
    view = OwnersView(SETTINGS)

    async def stop() -> None:
        raise RuntimeError("a fault of the client")

    view._consumer = SimpleNamespace(stop=stop)  # type: ignore[assignment]
    await view.close()
    assert "a fault of the client" in capsys.readouterr().out


async def test_a_producer_is_let_go_of_whatever_its_senders_make_of_its_end() -> None:
    producer = IdempotentProducer(SETTINGS, 0.0)

    def acked(*_: object) -> None:
        raise RuntimeError("a fault of the sender")

    producer.send(OutRecord("t", 0, b"k", b"v", []), acked)
    with pytest.raises(RuntimeError, match="fault of the sender"):
        await producer.close()
    assert not producer._handle


async def test_one_producer_that_does_not_close_keeps_no_other_open() -> None:
    parts = [Part(fails=True), Part()]
    pool = ProducerPool(lambda _lane: parts[0])  # type: ignore[arg-type,return-value]
    pool._current = dict(enumerate(parts))  # type: ignore[arg-type]
    parts[0].opens.set()
    closing = asyncio.create_task(pool.close())
    await settle()
    assert not closing.done()
    parts[1].opens.set()
    with pytest.raises(ExceptionGroup, match="producers: not closed"):
        await closing
    assert parts[1].closed


async def test_what_is_cut_short_while_it_closes_keeps_nothing_after_it_open() -> None:
    """Half of a partition that stays open is a database that nobody closes any more."""
    parts = [Part(), Part(fails=True), Part()]
    parts[1].opens.set()
    parts[2].opens.set()
    closing = asyncio.create_task(close_each((part.close for part in parts), "parts"))
    await settle()
    assert [part.began for part in parts] == [True, False, False]
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert [part.closed for part in parts] == [False, True, True]


async def test_a_part_of_the_engine_that_fails_to_stop_keeps_no_other_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[str] = []
    settings = EngineSettings(bootstrap_servers="127.0.0.1:1", mac_keys="k:" + "00" * 16)  # type: ignore[arg-type]

    class App:
        async def start(self) -> None:
            """It has nothing to start."""

        async def stop(self) -> None:
            ended.append("app")
            raise RuntimeError("a service of Faust's")

    class Janitor:
        def __init__(self, owned: Ownership, *_: object) -> None:
            self._owned = owned

        def start(self) -> None:
            self._owned.stop_engine(EngineError("told to stop"))

        async def close(self) -> None:
            ended.append("janitor")

    class Warm:
        def close(self) -> None:
            ended.append("warm")

    async def pool_closed(_pool: ProducerPool) -> None:
        ended.append("pool")

    async def warm(_engine: Engine) -> Warm:
        return Warm()

    monkeypatch.setattr(engine_app, "make_app", lambda _settings: App())
    monkeypatch.setattr(engine_app, "install", lambda *_: None)
    monkeypatch.setattr(engine_app, "Janitor", Janitor)
    monkeypatch.setattr(ProducerPool, "close", pool_closed)
    monkeypatch.setattr(Engine, "_warm", warm)
    monkeypatch.setattr(StopSignals, "arm", lambda _stop: ended.append("armed"))
    engine = Engine(settings, lambda *_: None, None, monitors=None)  # type: ignore[arg-type]
    web: Any = SimpleNamespace(serve=lambda *_: None)
    layout = Layout(partitions=1, counts={}, size_max={}, queues=())
    with pytest.raises(RuntimeError, match="Faust"):
        await engine._serve(layout, None, web, "", StopSignals(10.0))  # type: ignore[arg-type]
    assert ended == ["armed", "janitor", "app", "pool", "warm"]


class Fence:
    """A fenced producer that cannot be started, and not be closed either."""

    def __init__(self, *_: object) -> None:
        """Nothing is connected."""

    async def start(self) -> None:
        raise OutcomeUnknownError("no answer")

    async def close(self) -> None:
        raise RuntimeError("not closed")


async def test_an_opening_that_fails_lets_go_of_its_store_whatever_else_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(opening, "FencedProducer", Fence)
    context: Any = SimpleNamespace(settings=SETTINGS, clock=lambda: 0.0)
    opened = opening.Opening(context, 0, asyncio.Semaphore(1))
    given_up: list[BaseException] = []
    monkeypatch.setattr(opened, "_give_up", given_up.append)
    with pytest.raises(RuntimeError, match="not closed"):
        await opened.run(lambda _step: None)
    assert [type(error) for error in given_up] == [OutcomeUnknownError]


async def test_fault_points_that_are_closed_read_nothing_back_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread would hold up the end of the engine until its brokers answer."""
    reading, ended = threading.Event(), threading.Event()

    class Committing(Fence):
        async def start(self) -> None:
            """It is the newest."""

        async def commit(self, _writes: object) -> None:
            """Our claim."""

        close = start

    def restore(_settings: object, _job: object, progress: RestoreProgress, _sink: object) -> None:
        reading.set()
        while not progress.cancelled and not stop.wait(0.001):
            pass
        if progress.cancelled:
            ended.set()

    stop = threading.Event()
    monkeypatch.setattr(actor, "FencedProducer", Committing)
    monkeypatch.setattr(actor, "restore", restore)
    monkeypatch.setattr(actor, "claim_of", lambda *_: b"")
    layout = Layout(partitions=1, counts={SETTINGS.topics.faults: 1}, size_max={}, queues=())
    context: Any = SimpleNamespace(settings=SETTINGS, layout=layout, clock=lambda: 0.0)
    task = actor.ActorTask(context, 0, None)  # type: ignore[arg-type]
    await asyncio.to_thread(reading.wait, 60)
    await task.close()
    try:
        assert await asyncio.to_thread(ended.wait, 20)
    finally:
        stop.set()


async def test_what_the_pool_fails_with_comes_after_what_has_failed_before() -> None:
    class Pool:
        async def close(self) -> None:
            raise ExceptionGroup("producers", [RuntimeError("later")])

    owned: Any = SimpleNamespace(unclean=None)
    await engine_app._close_pool(Pool(), owned)  # type: ignore[arg-type]
    assert "later" in repr(owned.unclean)
    owned.unclean = first = RuntimeError("first")
    await engine_app._close_pool(Pool(), owned)  # type: ignore[arg-type]
    assert owned.unclean is first
