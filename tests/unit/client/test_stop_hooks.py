"""What bodies share is closed when their worker stops: once, on its loop, when all have ended."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace

import pytest

from dalsegno.client import Flow, Worker
from dalsegno.streams.client.stopping import run_stop_hooks, stop_hooks


def flow(name: str) -> Flow:
    made = Flow(name)

    @made.step(reads=[], writes=[])
    async def body(_ctx: object) -> None:
        return None

    return made


class Pool:
    """Something that is shared; closed on a loop."""

    def __init__(self) -> None:
        self.closed: list[asyncio.AbstractEventLoop] = []

    async def close(self) -> None:
        self.closed.append(asyncio.get_running_loop())


async def test_each_hook_is_called_once_in_order_whatever_another_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pool, said = Pool(), []
    first, second = flow("a"), flow("b")
    first.on_stop(pool.close)

    @first.on_stop
    def plain() -> None:
        said.append("plain")
        raise RuntimeError("not today")

    @second.on_stop
    async def hangs() -> None:
        await asyncio.Event().wait()

    second.on_stop(pool.close)
    second.on_stop(lambda: said.append("last"))
    with caplog.at_level(logging.ERROR, "dalsegno.worker"):
        await run_stop_hooks(stop_hooks([first, second]), 0.05)
    assert pool.closed == [asyncio.get_running_loop()]
    assert said == ["plain", "last"]
    assert ["failed" in record.getMessage() for record in caplog.records] == [True, True]


def test_a_worker_that_never_had_its_name_leaves_them_to_whoever_has_it() -> None:
    pool, made = Pool(), flow("a")
    made.on_stop(pool.close)
    worker = Worker([made], bootstrap_servers="127.0.0.1:1", name="stop-hooks")
    worker.stop()
    worker.run()
    assert pool.closed == []


async def test_a_worker_that_is_cancelled_in_its_hooks_gives_its_name_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else nobody in the process could have the name again."""
    made, released = flow("a"), []

    @made.on_stop
    async def ends_itself() -> None:
        raise asyncio.CancelledError

    async def sessions(*_: object) -> None:
        """None of them takes anything."""

    name = SimpleNamespace(name="w", release=lambda: released.append("w"))
    monkeypatch.setattr("dalsegno.streams.client.worker.claim_name", lambda *_, **__: name)
    monkeypatch.setattr("dalsegno.streams.client.worker.cluster_of", lambda _: "c")
    monkeypatch.setattr(Worker, "_sessions", sessions)
    with pytest.raises(asyncio.CancelledError):
        await Worker([made], bootstrap_servers="127.0.0.1:1").serve()
    assert released == ["w"]
