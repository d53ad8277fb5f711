"""`python -m tests.chaos.inside.dependency`: the service that `paid_flow` calls, and its proxy.

`PROXY_PORT` is the proxy's; `SERVICE_PORT` the service's own, where `POST /mode/MODE` tells the
proxy what to do and `GET /counts` answers what the service counted.
"""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass
from typing import Final

from aiohttp import web
from benchmarks.outage_lab.service import Mode, Service

PROXY_PORT: Final = 8080
SERVICE_PORT: Final = 8081
SPAN_S: Final = 0.1
AT_ONCE: Final = 4
CAPACITY_PER_S: Final = AT_ONCE / SPAN_S


@dataclass
class Counts:
    """Monotonic seconds of connections to the proxy and of requests at the service.

    `done`: how often each run was served. `repeats`: requests under a key that had been served.
    """

    tries: list[float]
    arrivals: list[float]
    done: dict[str, int]
    repeats: int


class Dependency(Service):
    """The service of the integration tests, steered and read from outside.

    Slow is slower than its callers wait.
    """

    host, port, service_port, slow_s = "0.0.0.0", PROXY_PORT, SERVICE_PORT, 3.0

    def routes(self) -> list[web.RouteDef]:
        return [
            *super().routes(),
            web.post("/mode/{mode}", self._set_mode),
            web.get("/counts", self._counts),
        ]

    async def _set_mode(self, request: web.Request) -> web.Response:
        self.mode = Mode(request.match_info["mode"])
        return web.Response()

    async def _counts(self, _request: web.Request) -> web.Response:
        counts = Counts(self.tries, self.arrivals, dict(self.done), self.repeats)
        return web.json_response(asdict(counts))


if __name__ == "__main__":
    Dependency(SPAN_S, AT_ONCE)
    threading.Event().wait()
