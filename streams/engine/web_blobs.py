"""Blobs over HTTP: workers and clients put and get them through any engine.

`POST /blobs/PARTITION/SHA256?size=N`: is it there, and stays? `PUT` with the bytes: keep them.
`GET`: the bytes. The engine believes no digest that it has not computed itself. As many blobs as
`AT_ONCE` are in memory at a time; who comes then waits, and is told to come again after a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, TypeVar

import structlog
from aiohttp import web

from dalsegno.schemas.blob import Blob
from dalsegno.schemas.errors import ValueRefusedError
from dalsegno.storage.archive.objects import ArchiveError
from dalsegno.storage.blobs.errors import BlobCorrupt, BlobMissing
from dalsegno.storage.blobs.store import BlobStore
from dalsegno.streams.engine import metrics_blobs
from dalsegno.streams.engine.jsonable import dumps
from dalsegno.streams.engine.metrics import EngineMetrics

log = structlog.get_logger(__name__)
T = TypeVar("T")

AT_ONCE: Final = 4
_TURN_S: Final = 10.0
"""How long a request waits for its turn."""
_BODY_S: Final = 60.0
"""How long a body may take on the wire, either way."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class _RefusedError(Exception):
    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail


class BlobWeb:
    """`store`: None where no bucket is set; every request is told so."""

    def __init__(self, store: BlobStore | None, metrics: EngineMetrics, bytes_max: int) -> None:
        self._store = store
        self._metrics = metrics
        self._bytes_max = bytes_max
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="blobs")

    def routes(self) -> list[web.RouteDef]:
        """What it answers."""
        path = "/blobs/{partition:[0-9]{1,5}}/{digest:[0-9a-f]{64}}"
        return [
            web.post(path, partial(self._answer, self._renew)),
            web.put(path, partial(self._answer, self._put)),
            web.get(path, partial(self._answer, self._get), allow_head=False),
        ]

    def close(self) -> None:
        """Requests that are at the store end with it."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _answer(self, handler: Handler, request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except _RefusedError as error:
            return _refused(error.status, error.code, error.detail)
        except ValueRefusedError as error:
            return _refused(400, "bad_blob", str(error))
        except BlobMissing as error:
            self._metrics.count(metrics_blobs.BLOB_TROUBLES, trouble="missing")
            return _refused(404, "blob_missing", str(error))
        except BlobCorrupt as error:
            self._metrics.count(metrics_blobs.BLOB_TROUBLES, trouble="corrupt")
            log.warning("blob is damaged", error=str(error))
            return _refused(422, "blob_corrupt", str(error))
        except ArchiveError as error:
            self._metrics.count(metrics_blobs.BLOB_TROUBLES, trouble=str(error.trouble))
            log.warning("blobs: store in trouble", error=str(error))
            return _refused(503, "blob_store_unavailable", str(error))
        except TimeoutError:
            detail = f"its bytes were not through in {_BODY_S:g} s: come again"
            return _refused(503, "slow", detail)

    async def _renew(self, request: web.Request) -> web.StreamResponse:
        store, partition, blob = self._asked(request)
        async with self._turn():
            there = await self._at_store(lambda: store.renew(partition, blob))
        if not there:
            return _refused(404, "blob_missing", f"{blob} has to be put")
        self._metrics.count(metrics_blobs.BLOB_PUTS, result="known")
        return web.Response(status=204)

    async def _put(self, request: web.Request) -> web.StreamResponse:
        store, partition, blob = self._asked(request)
        async with self._turn():
            async with asyncio.timeout(_BODY_S):
                packed = await self._body(request, blob)
            await self._at_store(lambda: store.put(partition, blob, packed))
        self._metrics.count(metrics_blobs.BLOB_PUTS, result="stored")
        self._metrics.count(metrics_blobs.BLOB_BYTES, len(packed), way="in")
        return web.Response(status=204)

    async def _get(self, request: web.Request) -> web.StreamResponse:
        store, partition, blob = self._asked(request)
        async with self._turn():
            packed = await self._at_store(lambda: store.get(partition, blob))
            answer = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
            answer.content_length = len(packed)
            async with asyncio.timeout(_BODY_S):
                await answer.prepare(request)
                await answer.write(packed)
                await answer.write_eof()
        self._metrics.count(metrics_blobs.BLOB_BYTES, len(packed), way="out")
        return answer

    def _asked(self, request: web.Request) -> tuple[BlobStore, int, Blob]:
        """Raises `ValueRefusedError`, `_RefusedError`."""
        if self._store is None:
            raise _RefusedError(501, "no_blob_store", "DALSEGNO_ARCHIVE_BUCKET is not set")
        size = request.query.get("size", "")
        if not size.isascii() or not size.isdigit() or len(size) > 18:
            raise ValueRefusedError("size", "give the blob's size in bytes")
        blob = Blob(bytes.fromhex(request.match_info["digest"]), int(size))
        if blob.size > self._bytes_max:
            raise _RefusedError(413, "blob_too_large", f"{blob}: at most {self._bytes_max}")
        return self._store, int(request.match_info["partition"]), blob

    async def _body(self, request: web.Request, blob: Blob) -> bytes:
        """At most the bytes that were announced. Raises `ValueRefusedError` for more or fewer."""
        packed = bytearray()
        async for chunk in request.content.iter_any():
            packed += chunk
            if len(packed) > blob.size:
                raise ValueRefusedError("body", f"more than the {blob.size} bytes announced")
        if len(packed) != blob.size:
            raise ValueRefusedError("body", f"{len(packed)} of {blob.size} bytes came")
        return bytes(packed)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(_TURN_S):
                await self._turns.acquire()
        except TimeoutError as error:
            detail = "other blobs are on their way: come again"
            raise _RefusedError(503, "busy", detail) from error
        try:
            yield
        finally:
            self._turns.release()

    async def _at_store(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _refused(status: int, error: str, detail: str) -> web.Response:
    return web.Response(
        status=status,
        body=dumps({"error": error, "detail": detail}),
        content_type="application/json",
    )
