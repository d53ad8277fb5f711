"""A real HTTP service that counts its arrivals, behind a proxy that can be told to misbehave."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from enum import StrEnum

from aiohttp import web

KEY_HEADER = "Idempotency-Key"
LOCAL = "127.0.0.1"
_503 = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n"
    b"Connection: close\r\n\r\n"
)
_END = b"\r\n\r\n"


class Mode(StrEnum):
    """What the proxy does with a connection. `HALF_OPEN`: the request goes through and is acted on,
    the answer never comes back. `SLOW`: it passes everything, `slow_s` late.
    """

    PASS = "pass"
    REFUSE = "refuse"
    HANG = "hang"
    SLOW = "slow"
    BUSY = "busy"
    HALF_OPEN = "half_open"


class Service:
    """Service and proxy, on ports of their own, in a thread of their own.

    `arrivals`: monotonic seconds of each request at the service; `tries`: of each connection to the
    proxy. `done`: how often each run was served; `repeats`: requests under a key that was served
    before. A request takes `span_s`, a repeat too; at most `at_once` are served at a time, others
    wait.
    """

    host, port, service_port = LOCAL, 0, 0
    """Where they listen, `port` being the proxy's; 0 is any free one."""

    slow_s = 1.0

    def __init__(self, span_s: float = 0.05, at_once: int = 5) -> None:
        self.mode = Mode.PASS
        self.arrivals: list[float] = []
        self.tries: list[float] = []
        self.done: Counter[str] = Counter()
        self.repeats = 0
        self.health_checks = 0
        self._keys: set[str] = set()
        self._span_s = span_s
        self._at_once = at_once
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(10)

    @property
    def url(self) -> str:
        """Where workers call it."""
        return f"http://{LOCAL}:{self.port}"

    @property
    def capacity_per_s(self) -> float:
        """Requests that it can serve in a second."""
        return self._at_once / self._span_s

    def routes(self) -> list[web.RouteDef]:
        """What the service answers."""
        return [web.post("/do/{run}", self._do), web.get("/health", self._health)]

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.run_forever()
        self._server.close()
        for task in (tasks := asyncio.all_tasks(self._loop)):
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.run_until_complete(self._runner.cleanup())
        self._loop.close()

    async def _serve(self) -> None:
        self._slots = asyncio.Semaphore(self._at_once)
        application = web.Application()
        application.add_routes(self.routes())
        runner = self._runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, self.host, self.service_port).start()
        self.service_port = runner.addresses[0][1]
        server = self._server = await asyncio.start_server(self._proxy, self.host, self.port)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()

    async def _do(self, request: web.Request) -> web.Response:
        self.arrivals.append(time.monotonic())
        key = request.headers[KEY_HEADER]
        async with self._slots:
            await asyncio.sleep(self._span_s)
        if key in self._keys:
            self.repeats += 1
        else:
            self._keys.add(key)
            self.done[request.match_info["run"]] += 1
        return web.Response(text="done")

    async def _health(self, _request: web.Request) -> web.Response:
        self.health_checks += 1
        return web.Response(text="well")

    async def _proxy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tries.append(time.monotonic())
        mode = self.mode
        try:
            if mode is Mode.REFUSE:
                return
            if mode is Mode.HANG:
                await reader.read(-1)
                return
            if mode is Mode.BUSY:
                await reader.readuntil(_END)
                writer.write(_503)
                await writer.drain()
                return
            if mode is Mode.SLOW:
                await asyncio.sleep(self.slow_s)
            inner_reader, inner_writer = await asyncio.open_connection(LOCAL, self.service_port)
            if mode is Mode.HALF_OPEN:
                await _only_there(reader, inner_reader, inner_writer)
                return
            await asyncio.gather(
                _copy(reader, inner_writer), _copy(inner_reader, writer), return_exceptions=True
            )
        except (OSError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    def close(self) -> None:
        """Ends the thread; what is open goes with it."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)


async def _only_there(
    reader: asyncio.StreamReader, inner_reader: asyncio.StreamReader, inner: asyncio.StreamWriter
) -> None:
    """Passes the request on, waits until it was acted on, and keeps the answer."""
    try:
        inner.write(await reader.readuntil(_END))
        await inner.drain()
        await inner_reader.readuntil(_END)
    finally:
        inner.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


def peak_per_second(arrivals: list[float], since_s: float) -> int:
    """The most arrivals within any second after a moment."""
    later = [at for at in arrivals if at >= since_s]
    first = 0
    most = 0
    for last, at in enumerate(later):
        while later[first] < at - 1.0:
            first += 1
        most = max(most, last - first + 1)
    return most
