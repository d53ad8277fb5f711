"""A session that ends closes what it has: after who still uses it, and all of it."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from dalsegno.streams.client.clocks import Clocks
from dalsegno.streams.client.config import ClientConfig, WorkerConfig
from dalsegno.streams.client.session import Session, WorkerCounts


def session() -> Session:
    return Session(
        ClientConfig(bootstrap_servers="nowhere:9"),
        WorkerConfig(),
        clocks=Clocks(),
        steps={},
        name=SimpleNamespace(name="w"),  # type: ignore[arg-type]
        producer=None,  # type: ignore[arg-type]
        counts=WorkerCounts(),
        encode=None,  # type: ignore[arg-type]
    )


async def test_one_that_is_given_up_while_it_opens_is_closed_after_its_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else clients are closed under their calls, and others begin that nobody ends."""
    began, goes_on, ended = threading.Event(), threading.Event(), threading.Event()

    def introduce() -> None:
        began.set()
        goes_on.wait(60)
        ended.set()

    opened = session()
    monkeypatch.setattr(opened, "_introduce", introduce)
    opening = asyncio.create_task(opened.open())
    await asyncio.to_thread(began.wait, 60)
    for _ in range(3):
        opening.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
    assert not opening.done()
    goes_on.set()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert ended.is_set()
    await opened.close()


class Part:
    """Of a session. `fails`: when it is ended."""

    merged = 0

    def __init__(self, *, fails: bool = False) -> None:
        self.ended = False
        self._fails = fails

    def stop(self) -> None:
        self.ended = True
        if self._fails:
            raise RuntimeError("not closed")

    close = stop


async def test_what_fails_while_it_ends_keeps_nothing_else_of_it_alive() -> None:
    ending = session()
    parts: list[Any] = [Part(), Part(fails=True), Part(), Part(fails=True), Part()]
    ending._consumers, ending._heartbeats, ending._answers = parts[:3], parts[3], parts[4]
    with pytest.raises(RuntimeError, match="not closed"):
        await ending.close()
    assert all(part.ended for part in parts)
