"""The engine's HTTP server: liveness, readiness, metrics, queries and blobs, which any engine
answers for.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from aiohttp import ClientError, ClientSession, ClientTimeout, web

from dalsegno.schemas.partitioner import partition_for
from dalsegno.storage.blobs.store import BlobStore
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.warm import WarmLost
from dalsegno.streams.engine import gauges, queries, web_recovery
from dalsegno.streams.engine.jsonable import dumps
from dalsegno.streams.engine.metrics import EngineMetrics
from dalsegno.streams.engine.owners import OwnersView
from dalsegno.streams.engine.ownership import Ownership
from dalsegno.streams.engine.settings import EngineSettings
from dalsegno.streams.engine.task import RUNNING, PartitionTask, TaskState
from dalsegno.streams.engine.web_blobs import BlobWeb
from dalsegno.streams.engine.web_versions import version_of

PROXIED: Final = "X-Dalsegno-Proxied"
"""Set on a call from one engine to another: it is answered or refused there, never passed on."""

WAIT_MS_MAX: Final = 30_000
_PROXY_MARGIN_S: Final = 5.0
_WAIT_STEP_S: Final = 0.005
_SHUTDOWN_S: Final = 1.0
"""What a stop waits for requests under way, and once more for those that it cancels then."""
_END_STEP_S: Final = 0.05
_ALL_ADDRESSES: Final = ("0.0.0.0", "::")  # noqa: S104 - not listened on here


def reply(status: int, value: object) -> web.Response:
    """A JSON answer."""
    return web.Response(status=status, body=dumps(value), content_type="application/json")


def unavailable(error: str, **more: object) -> web.Response:
    """503: try again soon. `error` is a short code."""
    return reply(503, {"error": error, **more})


class EngineWeb:
    """Up from the first moment of a start, so that a supervisor sees a waiting engine as alive."""

    def __init__(
        self, settings: EngineSettings, metrics: EngineMetrics, blobs: BlobStore | None = None
    ) -> None:
        self._blobs = BlobWeb(blobs, metrics, settings.blobs.bytes_max)
        self._settings = settings
        self._metrics = metrics
        self._ownership: Ownership | None = None
        self._owners: OwnersView | None = None
        self._session: ClientSession | None = None
        self._runner: web.AppRunner | None = None

    async def start(self) -> str:
        """Bind and serve. Returns the URL under which other engines reach us."""
        application = web.Application(middlewares=[_warm_lost])
        application.add_routes(
            [
                web.get("/livez", self._livez),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics_page),
                web.get("/partitions", self._partitions),
                web.get("/runs", self._runs),
                web.get("/recovery", self._recovery),
                web.get("/fault-points", self._fault_points),
                web.get("/erasures/{digest}", self._erasure),
                web.get("/plans/{run_id:.+}", self._plan),
                web.get("/runs/{run_id:.+}", self._run),
                *self._blobs.routes(),
            ]
        )
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=_SHUTDOWN_S)
        await self._runner.setup()
        settings = self._settings
        site = web.TCPSite(self._runner, settings.http_host, settings.http_port)
        await site.start()
        self._session = ClientSession()
        host, port = self._runner.addresses[0][:2]
        if host in _ALL_ADDRESSES:
            host = socket.gethostname()
        elif ":" in host:
            host = f"[{host}]"
        return settings.http_url or f"http://{host}:{port}"

    def serve(self, ownership: Ownership, owners: OwnersView) -> None:
        """The partitions exist: answer queries."""
        self._ownership, self._owners = ownership, owners

    def starting(self) -> None:
        """There are no partitions any more: the start begins anew."""
        self._ownership = self._owners = None

    async def close(self) -> None:
        """Stop serving."""
        self._blobs.close()
        if self._session is not None:
            await self._session.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _livez(self, _request: web.Request) -> web.Response:
        """Red when a restart would help: the group does not hear us although its broker answers, or
        a monitor does not hear its own canaries although the events are read.
        """
        silent_s, deaf_s = 0.0, 0.0
        if self._ownership is not None:
            silent_s = self._ownership.context.joined().silent_s()
            tasks = self._ownership.tasks.values()
            deaf = self._ownership.hearing.deaf_s(tasks, time.monotonic())
            deaf_s = max(deaf.values(), default=0.0)
        alive = max(silent_s, deaf_s) <= 2 * self._settings.session_timeout_ms / 1_000
        said = {"group_silent_s": round(silent_s, 1), "monitor_deaf_s": round(deaf_s, 1)}
        return reply(200 if alive else 503, {"alive": alive, **said})

    async def _readyz(self, _request: web.Request) -> web.Response:
        if self._ownership is None:
            return unavailable("starting", detail="waits for a broker, or for the checks")
        tasks = self._ownership.tasks.values()
        waiting = [queries.partition_view(task) for task in tasks if not _ready(task)]
        if waiting:
            return unavailable("partitions_not_ready", partitions=waiting)
        return reply(200, {"ready": True, "partitions": sorted(self._ownership.tasks)})

    async def _metrics_page(self, _request: web.Request) -> web.Response:
        body = gauges.collect(self._metrics, self._ownership)
        return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4"})

    async def _partitions(self, _request: web.Request) -> web.Response:
        if self._ownership is None or self._owners is None:
            return unavailable("starting")
        own = [queries.partition_view(task) for task in self._ownership.tasks.values()]
        return reply(
            200, {"own": own, "owners": [c for _, c in sorted(self._owners.claims.items())]}
        )

    async def _runs(self, request: web.Request) -> web.Response:
        if self._ownership is None:
            return unavailable("starting")
        try:
            wanted = queries.RunFilter.parse(request.query)
        except ValueError as error:
            return reply(400, {"error": "bad_query", "detail": str(error)})
        tasks = [task for task in self._ownership.tasks.values() if task.state in RUNNING]
        return reply(200, await queries.list_runs(tasks, wanted))

    async def _run(self, request: web.Request) -> web.Response:
        if self._ownership is None or self._owners is None:
            return unavailable("starting")
        run_id = request.match_info["run_id"]
        try:
            min_offset = int(request.query.get("min_offset", "-1"))
            wait_ms = min(WAIT_MS_MAX, max(0, int(request.query.get("wait_ms", "0"))))
            version = int(request.query.get("version", "-1"))
        except ValueError:
            detail = "min_offset, wait_ms and version are integers"
            return reply(400, {"error": "bad_query", "detail": detail})
        until = request.query.get("until", "")
        if until not in {"", "ended"}:
            return reply(400, {"error": "bad_query", "detail": "until is `ended`, or left out"})
        number = partition_for(run_id, self._ownership.context.layout.partitions)
        task = self._ownership.tasks.get(number)
        if task is None:
            return await self._proxy(request, number, wait_ms)
        deadline = time.monotonic() + wait_ms / 1_000
        while _may_read(task, min_offset) and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_WAIT_STEP_S)  # an event per query would cost every batch
        if until:
            await _end_of(task, run_id, deadline)
        refusal = self._not_ready(task, min_offset)
        if refusal is not None:
            return refusal
        if "version" in request.query:
            return reply(*await version_of(task, run_id, version))
        return self._own_run(task, run_id)

    async def _recovery(self, request: web.Request) -> web.Response:
        if self._ownership is None:
            return unavailable("starting")
        try:
            found = web_recovery.previews(self._ownership.tasks.values(), request.query)
        except ValueError as error:
            return reply(400, {"error": "bad_query", "detail": str(error)})
        return reply(200, {"partitions": found})

    async def _fault_points(self, _request: web.Request) -> web.Response:
        if self._ownership is None:
            return unavailable("starting")
        found = web_recovery.fault_points(self._ownership.tasks.values())
        return reply(200, {"fault_points": found})

    async def _erasure(self, request: web.Request) -> web.Response:
        """By the digest of the run's id: so the id is in no address, and in no log of them."""
        if self._ownership is None or self._owners is None:
            return unavailable("starting")
        digest, text = request.match_info["digest"], request.query.get("partition", "")
        if not text.isdecimal():
            return reply(400, {"error": "bad_query", "detail": "partition is a number"})
        task = self._ownership.tasks.get(int(text))
        if task is None:
            return await self._proxy(request, int(text), 0)
        fold = task.fold
        if task.state not in RUNNING or not isinstance(fold, Partition):
            return unavailable("partition_not_ready", partition=queries.partition_view(task))
        found = [stone for each, stone in fold.erasures if each.hex() == digest]
        if not found:
            return reply(404, {"error": "not_erased", "partition": task.number})
        return reply(200, {"erasure": msgspec.structs.asdict(found[0])})

    async def _plan(self, request: web.Request) -> web.Response:
        if self._ownership is None or self._owners is None:
            return unavailable("starting")
        run_id = request.match_info["run_id"]
        number = partition_for(run_id, self._ownership.context.layout.partitions)
        task = self._ownership.tasks.get(number)
        if task is None:
            return await self._proxy(request, number, 0)
        if task.state not in RUNNING:
            return unavailable("partition_not_ready", partition=queries.partition_view(task))
        try:
            plan = web_recovery.plan_of(task, run_id, request.query)
        except ValueError as error:
            return reply(400, {"error": "bad_query", "detail": str(error)})
        if plan is None:
            return reply(404, {"error": "unknown_run", "run_id": run_id, "partition": number})
        return reply(200, {"partition": number, "plan": plan})

    def _not_ready(self, task: PartitionTask, min_offset: int) -> web.Response | None:
        if task.state not in RUNNING or task.fold is None:
            return unavailable("partition_not_ready", partition=queries.partition_view(task))
        if not _has_read(task, min_offset):
            return unavailable(
                "not_yet_read", partition=task.number, position=task.events_offset, lag=task.lag
            )
        return None

    def _own_run(self, task: PartitionTask, run_id: str) -> web.Response:
        view = None if task.fold is None else task.fold.run(run_id)
        if view is None:
            stone = task.fold.erased(run_id) if isinstance(task.fold, Partition) else None
            if stone is not None:
                said = {"error": "erased", "erased_at_ms": stone.erased_ms}
                return reply(404, {**said, "partition": task.number})
            return reply(404, {"error": "unknown_run", "run_id": run_id, "partition": task.number})
        return reply(200, {"partition": task.number, "position": task.events_offset, "run": view})

    async def _proxy(self, request: web.Request, number: int, wait_ms: int) -> web.Response:
        assert self._session is not None
        assert self._owners is not None
        claim = self._owners.claims.get(number)
        if claim is None or PROXIED in request.headers:
            return unavailable(
                "no_owner", partition=number, detail="the partition has no owner now"
            )
        timeout = ClientTimeout(total=wait_ms / 1_000 + _PROXY_MARGIN_S)
        try:
            async with self._session.get(
                claim.url + request.path_qs, headers={PROXIED: "1"}, timeout=timeout
            ) as answer:
                body = await answer.read()
                return web.Response(
                    status=answer.status, body=body, content_type=answer.content_type
                )
        except (ClientError, TimeoutError, OSError) as error:
            return unavailable(
                "owner_unreachable", partition=number, url=claim.url, detail=type(error).__name__
            )


@web.middleware
async def _warm_lost(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """A run whose bytes cannot be read now: the partition finds it too, and restores itself."""
    try:
        return await handler(request)
    except WarmLost as error:
        return unavailable("local_database_lost", detail=str(error))


def _ready(task: PartitionTask) -> bool:
    return task.state in RUNNING and not task.missing_topics and not task.keys.missing


async def _end_of(task: PartitionTask, run_id: str, deadline: float) -> None:
    """Wait while the run goes on, and this task with it. Looks only when the fold has moved."""
    looked = -1
    while task.state in RUNNING and (fold := task.fold) is not None:
        if fold.position != looked:
            if not fold.is_open(run_id):
                return
            looked = fold.position
        if time.monotonic() >= deadline:
            return
        await asyncio.sleep(_END_STEP_S)


def _may_read(task: PartitionTask, min_offset: int) -> bool:
    """Whether it has not read so far, and may yet."""
    return task.state is not TaskState.CLOSED and not _has_read(task, min_offset)


def _has_read(task: PartitionTask, min_offset: int) -> bool:
    return task.state in RUNNING and task.events_offset > min_offset
