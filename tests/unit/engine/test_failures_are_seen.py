"""R119: what fails is counted and visible; nothing is green with a part missing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import ClientSession
from faust.transport.drivers import aiokafka as driver
from mode import Service
from tests.unit.engine.test_outputs import Bench, settle

from dalsegno.schemas.codec import encode
from dalsegno.schemas.outputs import Claim, DeadLetter
from dalsegno.streams.client.refused import BrokerRefused, Cause
from dalsegno.streams.core.actions import Output, PutAside
from dalsegno.streams.core.sequence import Sequence
from dalsegno.streams.engine import app, gauges, janitor
from dalsegno.streams.engine.actor import ActorTask
from dalsegno.streams.engine.consumer import BatchConsumer
from dalsegno.streams.engine.janitor import EngineService, Janitor
from dalsegno.streams.engine.metrics import EngineMetrics
from dalsegno.streams.engine.owners import OwnersView
from dalsegno.streams.engine.settings import EngineSettings
from dalsegno.streams.engine.stopping import StopSignals
from dalsegno.streams.engine.web import EngineWeb

SETTINGS = EngineSettings(bootstrap_servers="127.0.0.1:1", http_host="127.0.0.1", http_port=0)
CLAIM = Claim(
    partition=3,
    owner="e",
    url="http://e",
    claim_id="c",
    rules_known=(1,),
    code_version="1",
    claimed_at_ms=1,
)


def letter(offset: int) -> Output:
    """A record that was put aside."""
    said = DeadLetter(
        topic="t.events", partition=0, offset=offset, at_ms=1, reason="bad_frame", detail=""
    )
    return Output(Sequence(offset, 0, offset), PutAside(said, b"key", b"value", ()))


async def test_a_dead_letter_that_is_not_written_fails_its_partition() -> None:
    """And no checkpoint goes past the record that it stands for."""
    bench = Bench()
    bench.outputs.add([letter(1)])
    bench.outputs.flush()
    waits = asyncio.create_task(bench.outputs.acknowledged(bench.outputs.queued()))
    bench.producer.lose()
    await settle()
    [failure] = bench.failures
    assert "dead-letters" in str(failure)
    assert not waits.done(), "the record that it stands for is read again"
    bench.outputs.add([letter(2)])
    bench.outputs.flush()
    assert bench.producer.pending == [], "and nothing goes ahead of it"
    await bench.outputs.close()
    with pytest.raises(asyncio.CancelledError):
        await waits


async def page(metrics: EngineMetrics) -> int:
    """The status of the page of metrics."""
    web = EngineWeb(SETTINGS, metrics)
    url = await web.start()
    try:
        async with ClientSession() as session, session.get(url + "/metrics") as answer:
            return answer.status
    finally:
        await web.close()


async def test_metrics_that_cannot_be_collected_are_no_page_of_zeros(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A scraper then says that its target is down."""
    assert await page(EngineMetrics()) == 200

    def raises() -> int:
        raise OSError("no such process")

    monkeypatch.setattr(gauges, "resident_bytes", raises)
    assert await page(EngineMetrics()) == 500
    assert "no such process" in caplog.text


class OwnersTopic:
    """A consumer of it whose first read fails; `end` is set by the third."""

    def __init__(self) -> None:
        self.reads = 0
        self.end = asyncio.Event()

    async def getmany(self, **_: object) -> dict[str, list[object]]:
        self.reads += 1
        match self.reads:
            case 1:
                raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "the name of a header")
            case 2:
                return {"owners": [SimpleNamespace(key=b"3", value=encode(CLAIM))]}
        self.end.set()
        await asyncio.Event().wait()
        raise AssertionError("it waits for ever")

    async def stop(self) -> None:
        """As the client's."""


async def test_a_reader_of_the_owners_says_what_fails_and_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nobody awaits it before the engine stops: its end would only be seen in stale owners."""
    view, topic = OwnersView(SETTINGS), OwnersTopic()
    view._task = asyncio.create_task(view._follow(topic))  # type: ignore[arg-type]
    await asyncio.wait_for(topic.end.wait(), 60)
    assert "owners topic not readable" in capsys.readouterr().out
    assert view.claims == {3: CLAIM}
    await view.close()


class Child(Service):  # type: ignore[misc]
    """Of an app."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on, self.ended = asyncio.Event(), asyncio.Event()

    async def on_stop(self) -> None:
        await self.goes_on.wait()
        self.ended.set()


async def test_a_faust_app_that_does_not_stop_in_time_is_left_running_and_that_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As mode stops its children: it takes a cancellation for their end, and says nothing."""
    parent, child = Service(), Child()
    await parent.start()
    await parent.add_runtime_dependency(child)
    await app._stop_app(parent, StopSignals(0.1))
    assert "has not stopped in time" in capsys.readouterr().out
    child.goes_on.set()
    async with asyncio.timeout(60):
        await child.ended.wait()


class Client(BatchConsumer):
    """What ends at a stop, without Faust and Kafka."""

    def __init__(self, ownership: object, poller: object) -> None:
        self.ownership, self._poller = ownership, poller
        self._looking = self.membership = None


class Partitions:
    """They end by what `closing` does."""

    context = SimpleNamespace(settings=SETTINGS)
    unclean: BaseException | None = None

    def __init__(self, closing: Callable[[], Awaitable[object]]) -> None:
        self.close = closing

    def saved_positions(self) -> dict[object, int]:
        return {}


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What has ended of a client, in order."""
    said: list[str] = []

    async def stopped(_client: Client) -> None:
        said.append("client")

    monkeypatch.setattr(driver.Consumer, "on_stop", stopped)
    return said


class Poller:
    def __init__(self, ended: list[str]) -> None:
        self._ended = ended

    async def close(self) -> None:
        self._ended.append("poller")


async def test_partitions_that_do_not_close_cleanly_keep_nothing_else_open(
    ended: list[str],
) -> None:
    async def fails() -> None:
        raise BaseExceptionGroup("partitions", [RuntimeError("a fault of ours")])

    partitions = Partitions(fails)
    await Client(partitions, Poller(ended)).on_stop()
    assert ended == ["poller", "client"]
    assert "a fault of ours" in repr(partitions.unclean)


async def test_a_stop_that_is_cut_short_leaves_no_poller_and_no_client_behind(
    ended: list[str],
) -> None:
    stopping = asyncio.create_task(
        Client(Partitions(asyncio.Event().wait), Poller(ended)).on_stop()
    )
    await settle()
    assert ended == []
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert ended == ["poller", "client"]


class Rig:
    """A janitor of an engine without partitions."""

    def __init__(self, *services: EngineService) -> None:
        self.metrics = EngineMetrics()
        self.stopped_by: asyncio.Future[BaseException] = asyncio.Future()
        context = SimpleNamespace(settings=SETTINGS, metrics=self.metrics)
        ownership: Any = SimpleNamespace(
            context=context,
            tasks={},
            unowned={},
            hearing=SimpleNamespace(look=lambda _tasks, _now_s: None),
            saved_positions=dict,
            stop_engine=self.stopped_by.set_result,
        )
        faust_app: Any = SimpleNamespace(crashed=False)
        self.janitor = Janitor(ownership, faust_app, services)


async def test_a_metric_that_cannot_be_counted_ends_the_engine_rather_than_its_ticks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()

    def raises(*_: object, **__: object) -> None:
        raise ValueError("labels do not fit")

    monkeypatch.setattr(rig.metrics, "observe", raises)
    rig.janitor.start()
    error = await asyncio.wait_for(rig.stopped_by, 60)
    await rig.janitor.close()
    assert str(error) == "labels do not fit"


async def test_a_service_that_fails_is_counted_and_begins_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Webhooks, the archiver and the sweeps are such services."""
    calls: list[int] = []
    thrice = asyncio.Event()

    async def archives(_ownership: object) -> None:
        calls.append(1)
        if len(calls) == 3:
            thrice.set()
            await asyncio.Event().wait()
        raise RuntimeError("not what a store says")

    monkeypatch.setattr(janitor, "_SERVICE_REST_S", 0.01)
    rig = Rig(archives)
    rig.janitor.start()
    await asyncio.wait_for(thrice.wait(), 60)
    await rig.janitor.close()
    assert b"dalsegno_service_failures_total 2.0" in rig.metrics.text()
    assert not rig.stopped_by.done()


async def test_a_broker_that_stands_still_while_it_is_asked_ends_no_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()

    def facts() -> dict[str, object]:
        raise TimeoutError  # of a future of the admin client

    monkeypatch.setattr(rig.janitor._admin, "facts", facts)
    await rig.janitor._check_counts()
    assert not rig.stopped_by.done()


async def test_a_look_at_the_partition_counts_holds_up_no_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While no broker answers, one is nearly always under way, and takes half a minute."""
    rig = Rig()
    asks, answers = threading.Event(), threading.Event()

    def facts() -> dict[str, object]:
        asks.set()
        answers.wait(60)
        return {}

    monkeypatch.setattr(rig.janitor._admin, "facts", facts)
    with ThreadPoolExecutor(1) as threads:
        asyncio.get_running_loop().set_default_executor(threads)
        try:
            looking = asyncio.create_task(rig.janitor._check_counts())
            while not asks.is_set():  # noqa: ASYNC110 - it is set in a thread
                await asyncio.sleep(0)
            looking.cancel()
            async with asyncio.timeout(20):
                await asyncio.to_thread(lambda: None)
        finally:
            answers.set()


async def test_a_broker_that_does_not_let_us_in_for_once_does_not_end_the_engine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rig = Rig()

    def facts() -> dict[str, object]:
        raise BrokerRefused(Cause.CREDENTIALS, "b2:9093", "Authentication failed")

    monkeypatch.setattr(rig.janitor._admin, "facts", facts)
    await rig.janitor._check_counts()
    assert "b2:9093" in capsys.readouterr().out


async def test_the_fault_points_ask_again_whether_they_are_ours_whatever_they_hear() -> None:
    said: list[object] = [RuntimeError("the consumer is gone"), True]

    async def still_member() -> object:
        found = said.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    actor = ActorTask.__new__(ActorTask)
    actor.number = 0
    group = SimpleNamespace(still_member=still_member)
    actor._context = SimpleNamespace(joined=lambda: group)  # type: ignore[assignment]
    assert [await actor._still_ours(), await actor._still_ours()] == [False, True]
