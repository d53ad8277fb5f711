"""The engine looks after itself: waits without an owner, deaf monitors, monitors that fail."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from tests.unit.core.log import Log, chain

from dalsegno.streams.core.attempt import Attempt
from dalsegno.streams.engine import heartbeats
from dalsegno.streams.engine import metrics_catalogue as catalogue
from dalsegno.streams.engine.hearing import Hearing
from dalsegno.streams.engine.heartbeats import RESTARTS_MAX, HeartbeatFeed
from dalsegno.streams.engine.metrics import EngineMetrics
from dalsegno.streams.engine.reconciler import Reconciler
from dalsegno.streams.engine.task import TaskState


def owned(log: Log) -> SimpleNamespace:
    """An ownership with one partition."""
    task = SimpleNamespace(number=0, fold=log.partition, state=TaskState.READY)
    context = SimpleNamespace(metrics=EngineMetrics())
    return SimpleNamespace(tasks={0: task}, unowned={7: 3}, context=context)


def walk(ownership: SimpleNamespace) -> None:
    # Every look at the clock is past the slice: the walk pauses after each run.
    ticks = itertools.count()
    asyncio.run(Reconciler(ownership, clock=lambda: next(ticks), pause_s=0).walk())


def test_runs_that_wait_for_somebody_count_for_nothing() -> None:
    log = Log()
    for number in range(5):
        log.start(chain(3), f"run-{number}")
    ownership = owned(log)
    walk(ownership)
    assert ownership.unowned == {0: 0}, "also: of a partition that has gone nothing is said"


def test_a_step_that_lost_its_deadline_is_found() -> None:
    log = Log()
    for number in range(5):
        log.start(chain(3), f"run-{number}")
    run = log.partition._runs.get("run-3")
    run.rows[0].due_ms = 0  # type: ignore[union-attr]
    ownership = owned(log)
    walk(ownership)
    assert ownership.unowned == {0: 1}


def test_a_walk_that_fails_is_counted_and_the_next_partition_is_looked_at() -> None:
    log = Log()
    log.start(chain(1))
    ownership = owned(log)
    ownership.tasks = {1: SimpleNamespace(number=1), **ownership.tasks}
    walk(ownership)
    assert ownership.unowned == {0: 0}
    text = ownership.context.metrics.text().decode()
    assert "dalsegno_reconciler_failures_total 1.0" in text


def test_a_partition_that_goes_away_during_the_walk_is_left_alone() -> None:
    log = Log()
    for number in range(3):
        log.start(chain(1), f"run-{number}")
    ownership = owned(log)
    ticks = itertools.count()

    def clock() -> float:
        now = next(ticks)
        if now == 2:
            ownership.tasks[0].state = TaskState.CLOSED
        return now

    asyncio.run(Reconciler(ownership, clock=clock, pause_s=0).walk())
    assert 0 not in ownership.unowned


@dataclass
class Watched:
    """A partition task as `Hearing` sees it."""

    number: int = 0
    canary_age_s: float = 0.0
    at_end: bool = True
    has_monitor: bool = True

    @property
    def feed(self) -> object:
        figures = SimpleNamespace(canary_age_s=self.canary_age_s) if self.has_monitor else None
        return SimpleNamespace(figures=lambda: figures)

    def caught_up(self) -> bool:
        return self.at_end


def deaf(hearing: Hearing, task: Watched, now_s: float) -> float | None:
    return hearing.deaf_s([task], now_s).get(task.number)  # type: ignore[list-item]


def looks(hearing: Hearing, task: Watched, *times_s: float) -> None:
    for now_s in times_s:
        hearing.look([task], now_s)  # type: ignore[list-item]


def test_a_monitor_that_hears_nothing_of_itself_is_deaf() -> None:
    hearing, task = Hearing(), Watched()
    looks(hearing, task, 0, 10, 20)
    task.canary_age_s = 15
    assert deaf(hearing, task, 20) == 15
    task.canary_age_s = 0.3
    assert deaf(hearing, task, 20) == 0.3


def test_silence_while_the_broker_is_away_is_no_fault_of_the_monitor() -> None:
    hearing, task = Hearing(), Watched()
    looks(hearing, task, 0)
    task.at_end = False
    looks(hearing, task, 30, 60)
    task.at_end, task.canary_age_s = True, 60
    assert deaf(hearing, task, 60) == 0
    looks(hearing, task, 61, 70)
    assert deaf(hearing, task, 70) == 10


def test_a_partition_that_is_new_or_has_no_monitor_is_not_deaf() -> None:
    hearing, task = Hearing(), Watched(canary_age_s=100)
    assert deaf(hearing, task, 100) == 0
    assert deaf(hearing, Watched(has_monitor=False), 100) is None


@dataclass
class Monitor:
    """Fails when told to; remembers what it was told is in flight."""

    fails: Callable[[], bool]
    in_flight: dict[tuple[str, str], Attempt] = field(default_factory=dict)
    closed: bool = False
    look_back_ms: int = 10_000

    def attempts(self, changes: list[tuple[tuple[str, str], Attempt]], _completed=()) -> None:
        self.in_flight.update(changes)
        if self.fails():
            raise RuntimeError("a fault of the monitor")

    def figures(self) -> str:
        return "figures"

    async def close(self) -> None:
        self.closed = True


class Host:
    """One partition, its group, and the monitors that were made for it."""

    number = 0
    log_ms = 50_000

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.metrics = EngineMetrics()
        self.monitors_made: list[Monitor] = []
        self.failing = False
        self.looked_back: list[int] = []
        self.pauses: list[float] = []
        self.settings = SimpleNamespace(topics=SimpleNamespace(heartbeats="h"))
        sleep = asyncio.sleep

        async def pause(delay_s: float) -> None:
            self.pauses.append(delay_s)
            await sleep(0)

        monkeypatch.setattr(heartbeats.asyncio, "sleep", pause)

    def monitors(self, _host: object) -> Monitor:
        self.monitors_made.append(Monitor(lambda: self.failing))
        return self.monitors_made[-1]

    def joined(self) -> Host:
        return self

    async def offset_at(self, _topic: str, _number: int, since_ms: int) -> int:
        self.looked_back.append(since_ms)
        return 5

    def wake(self) -> None:
        """Read on."""

    def count(self, metric: catalogue.Metric) -> float:
        wanted = f"{metric.name} "
        lines = self.metrics.text().decode().splitlines()
        return next((float(x.removeprefix(wanted)) for x in lines if x.startswith(wanted)), 0.0)


def attempt(step: str) -> object:
    return SimpleNamespace(step=step)


async def test_a_monitor_that_fails_is_begun_anew_with_what_is_in_flight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = Host(monkeypatch)
    first = [(("r", "a"), attempt("a")), (("r", "b"), attempt("b"))]
    feed = await HeartbeatFeed.start(host, host, first)  # type: ignore[arg-type]
    feed.attempts([(("r", "a"), None)], ())
    host.failing = True
    feed.attempts([(("r", "c"), attempt("c"))], ())  # type: ignore[list-item]
    assert feed.failed
    assert feed.wanted() is None
    assert feed.figures() is None
    host.failing = False
    await feed._restarting  # type: ignore[misc]
    assert not feed.failed
    assert host.monitors_made[0].closed
    assert set(host.monitors_made[1].in_flight) == {("r", "b"), ("r", "c")}
    assert host.looked_back == [40_000, 40_000], "the heartbeats are read back"
    assert host.count(catalogue.MONITOR_FAILURES) == 1
    assert host.count(catalogue.MONITOR_RESTARTS) == 1
    assert feed.figures() == "figures"


async def test_a_monitor_that_fails_again_and_again_stays_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = Host(monkeypatch)
    feed = await HeartbeatFeed.start(host, host, [])  # type: ignore[arg-type]
    host.failing = True
    feed.attempts([(("r", "a"), attempt("a"))], ())  # type: ignore[list-item]
    seen = None
    while feed._restarting is not seen:
        seen = feed._restarting
        await seen  # type: ignore[misc]
    assert feed.failed
    assert host.count(catalogue.MONITOR_RESTARTS) == RESTARTS_MAX
    assert host.count(catalogue.MONITOR_FAILURES) == RESTARTS_MAX + 1
    assert host.pauses == sorted(host.pauses), "the pauses grow"
    await feed.close()


async def test_a_monitor_whose_place_is_not_found_is_let_go_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It stayed, with the partition's whole state, and had canaries sent for ever."""
    host = Host(monkeypatch)

    async def away(*_: object) -> int:
        raise TimeoutError

    host.offset_at = away  # type: ignore[method-assign]
    with pytest.raises(TimeoutError):
        await HeartbeatFeed.start(host, host, [])  # type: ignore[arg-type]
    assert host.monitors_made[0].closed


async def test_a_monitor_that_cannot_be_made_is_seen_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    host = Host(monkeypatch)
    feed = await HeartbeatFeed.start(host, host, [])  # type: ignore[arg-type]
    host.failing = True
    feed.attempts([(("r", "a"), attempt("a"))], ())  # type: ignore[list-item]
    host.failing = False
    made, troubles = host.monitors, iter([RuntimeError("no memory for it")])

    def make(given: object) -> Monitor:
        for error in troubles:
            raise error
        return made(given)

    host.monitors = make  # type: ignore[method-assign]
    await feed._restarting  # type: ignore[misc]
    assert feed.failed
    assert "no memory for it" in capsys.readouterr().out
    assert host.count(catalogue.MONITOR_FAILURES) == 2
    await feed._restarting  # type: ignore[misc]
    assert not feed.failed
    assert host.count(catalogue.MONITOR_RESTARTS) == 1
    await feed.close()
