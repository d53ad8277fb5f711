"""A real engine's blob pages over HTTP, around a store in memory that fails as told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web
from tests.unit.storage.blob_lab import BlobLab

from dalsegno.streams.client.blobs import Blobs
from dalsegno.streams.client.engines import Engines
from dalsegno.streams.engine.metrics import EngineMetrics
from dalsegno.streams.engine.web_blobs import BlobWeb


class Claims:
    """The owners topic: these engines, in this order. `reads`: how often it was read."""

    def __init__(self, *urls: str) -> None:
        self.now = dict(enumerate(urls))
        self.reads = 0

    def urls(self) -> dict[int, str]:
        self.reads += 1
        return dict(self.now)

    def close(self) -> None:
        """Nothing to free."""


class BlobEngine:
    """Serves on a loop of its own thread. `asked`: methods, in order."""

    def __init__(self, lab: BlobLab, bytes_max: int, *, store: bool = True) -> None:
        self.asked: list[str] = []
        self.metrics = EngineMetrics()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._store = lab.store if store else None
        self._bytes_max = bytes_max
        self.url = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(30)

    def no_turns(self) -> None:
        """As if others had all of them, for good."""
        self._pages._turns = asyncio.Semaphore(0)

    async def _start(self) -> str:
        @web.middleware
        async def note(request: web.Request, handler):  # type: ignore[no-untyped-def]
            self.asked.append(request.method)
            return await handler(request)

        application = web.Application(middlewares=[note])
        self._pages = BlobWeb(self._store, self.metrics, self._bytes_max)
        application.add_routes(self._pages.routes())
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = self._runner.addresses[0][1]
        return f"http://127.0.0.1:{port}"

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(30)
        self._pages.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextmanager
def engine_of(
    lab: BlobLab, bytes_max: int = 8 << 20, *, store: bool = True
) -> Iterator[BlobEngine]:
    made = BlobEngine(lab, bytes_max, store=store)
    try:
        yield made
    finally:
        made.close()


def blobs_of(*urls: str, from_bytes: int = 1_000, cache_bytes: int = 1 << 20) -> Blobs:
    """A client's side of these engines."""
    engines = Engines(Claims(*urls))  # type: ignore[arg-type]
    return Blobs(engines, from_bytes=from_bytes, cache_bytes=cache_bytes)
