"""Requests that are under way when an engine stops do not hold it up."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

from aiohttp import ClientSession, ClientTimeout

from dalsegno.schemas.blob import Blob
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.engine.metrics import EngineMetrics
from dalsegno.streams.engine.settings import EngineSettings
from dalsegno.streams.engine.task import TaskState
from dalsegno.streams.engine.web import EngineWeb

SETTINGS = EngineSettings(bootstrap_servers="127.0.0.1:1", http_host="127.0.0.1", http_port=0)


async def test_a_query_that_waits_for_a_partition_is_answered_when_that_is_closed() -> None:
    web = EngineWeb(SETTINGS, EngineMetrics())
    url = await web.start()
    task: Any = SimpleNamespace(
        number=0, state=TaskState.READY, events_offset=0, lag=3, error=None, missing_topics=(),
        keys=SimpleNamespace(missing=False, notice=""),
        fold=Partition(0), actor=None,
    )  # fmt: skip
    context = SimpleNamespace(layout=SimpleNamespace(partitions=1))
    web.serve(SimpleNamespace(context=context, tasks={0: task}), SimpleNamespace(claims={}))  # type: ignore[arg-type]
    async with ClientSession(timeout=ClientTimeout(total=20)) as session:

        async def ask() -> int:
            async with session.get(f"{url}/runs/r?min_offset=9&wait_ms=30000") as answer:
                return answer.status

        asking = asyncio.create_task(ask())
        while not web._runner.server.connections:  # type: ignore[union-attr]  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        task.state = TaskState.CLOSED
        assert await asking == 503
    await web.close()


async def test_a_request_that_hangs_in_the_store_is_not_waited_for() -> None:
    asked, answers = threading.Event(), threading.Event()

    def get(_partition: int, _blob: Blob) -> bytes:
        asked.set()
        answers.wait(60)
        return b""

    web = EngineWeb(SETTINGS, EngineMetrics(), SimpleNamespace(get=get))  # type: ignore[arg-type]
    url = await web.start()
    async with ClientSession() as session:
        path = f"/blobs/0/{'0' * 64}?size=1"
        asking = asyncio.create_task(session.get(url + path))
        while not asked.is_set():  # noqa: ASYNC110 - it is set in a thread
            await asyncio.sleep(0.001)
        try:
            async with asyncio.timeout(30):
                await web.close()
        finally:
            answers.set()
        await asyncio.gather(asking, return_exceptions=True)
