"""Large values through the engines: put before the event that names them, read when a step does.

Blocking and thread-safe. Each call asks the owner of the partition first, then the others, and
again with growing pauses until its patience ends. What was read is verified here, too: neither an
engine nor the wire is believed.
"""

from __future__ import annotations

import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import msgspec

from dalsegno.schemas.blob import Blob
from dalsegno.streams.client.blob_errors import (
    BlobCorrupt,
    BlobMissing,
    BlobRefused,
    BlobStoreUnavailable,
)
from dalsegno.streams.client.engine_http import NotHttpError, http_call
from dalsegno.streams.client.engines import Engines
from dalsegno.streams.client.errors import EngineUnavailable
from dalsegno.streams.client.failures import StepStopped

BLOB_BYTES_MAX: Final = 256 << 20
"""The most that an engine may be set to take."""
_CALL_S: Final = 60.0
_PAUSE_FIRST_S: Final = 0.1
_PAUSE_MAX_S: Final = 5.0


class NoBlobStore(Exception):  # noqa: N818 - says what is the case
    """The engines have no bucket."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to try. `stopped`: asked before each try; then `StepStopped` is raised."""

    timeout_s: float
    stopped: Callable[[], bool] = lambda: False


class _Said(msgspec.Struct):
    error: str = ""
    detail: str = ""


class Blobs:
    """`from_bytes`: packed values above this go out as blobs; 0: none does. `off_until_s`: until
    then (monotonic) the engines are known to have no store.
    """

    def __init__(self, engines: Engines, *, from_bytes: int = 0, cache_bytes: int = 0) -> None:
        self.from_bytes = from_bytes
        self.off_until_s = 0.0
        self._engines = engines
        self._cache = _Cache(cache_bytes)

    def by_hand(self) -> Blobs:
        """The same, but nothing becomes a blob by itself."""
        return Blobs(self._engines)

    def put(self, partition: int, packed: bytes, patience: Patience) -> Blob:
        """Returns once the store has it, for long enough that an event can name it.

        Raises `NoBlobStore`, `BlobRefused`, `BlobStoreUnavailable`, `StepStopped`.
        """
        blob = Blob.of(packed)
        if not self.renew(partition, blob, patience):
            status, said, _ = self._call("PUT", partition, blob, patience, packed)
            if status != HTTPStatus.NO_CONTENT:
                raise BlobRefused(blob, said)
        self._cache.put(blob, packed)
        return blob

    def renew(self, partition: int, blob: Blob, patience: Patience) -> bool:
        """Whether the store has it, for long enough that an event can name it. Raises as `put`."""
        status, said, _ = self._call("POST", partition, blob, patience)
        if status not in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_FOUND):
            raise BlobRefused(blob, said)
        return status == HTTPStatus.NO_CONTENT

    def get(self, partition: int, blob: Blob, patience: Patience) -> bytes:
        """The packed value, verified.

        Raises `BlobMissing`, `BlobCorrupt`, `BlobRefused`, `BlobStoreUnavailable`, `StepStopped`.
        """
        known = self._cache.get(blob)
        if known is not None:
            return known
        try:
            status, said, body = self._call("GET", partition, blob, patience)
        except NoBlobStore as error:
            raise BlobMissing(blob, "the engines have no blob store") from error
        if status == HTTPStatus.NOT_FOUND:
            raise BlobMissing(blob, said)
        if status == HTTPStatus.UNPROCESSABLE_ENTITY:
            raise BlobCorrupt(blob, said)
        if status != HTTPStatus.OK:
            raise BlobRefused(blob, said)
        if not blob.matches(body):
            raise BlobCorrupt(blob, "what an engine sent has another digest")
        self._cache.put(blob, body)
        return body

    def _call(
        self, method: str, partition: int, blob: Blob, patience: Patience, packed: bytes = b""
    ) -> tuple[int, str, bytes]:
        """Status, what was said in words, and the body of the first engine that can say something.

        Raises `NoBlobStore`, `BlobStoreUnavailable`, `StepStopped`.
        """
        path = f"/blobs/{partition}/{blob.digest.hex()}?size={blob.size}"
        deadline = time.monotonic() + patience.timeout_s
        pause_s = _PAUSE_FIRST_S
        while True:
            if patience.stopped():
                raise StepStopped("stopped while a large value was on its way")
            try:
                return self._once(method, path, partition, packed, deadline)
            except BlobStoreUnavailable:
                # Jitter: many steps wait for the same store.
                pause_s *= random.uniform(0.5, 1.0)  # noqa: S311 - not a secret
                if time.monotonic() + pause_s >= deadline:
                    raise
            time.sleep(pause_s)
            pause_s = min(_PAUSE_MAX_S, 3 * pause_s)

    def _once(
        self, method: str, path: str, partition: int, packed: bytes, deadline: float
    ) -> tuple[int, str, bytes]:
        failures: list[str] = []
        without = 0
        try:
            urls = self._engines.addresses(partition)
        except EngineUnavailable as error:
            raise BlobStoreUnavailable(str(error)) from error
        for url in urls:
            left_s = min(_CALL_S, max(1.0, deadline - time.monotonic()))
            try:
                status, body = http_call(
                    method, url + path, left_s, packed or None, bytes_max=BLOB_BYTES_MAX
                )
            except (OSError, NotHttpError) as error:
                # Whoever else helps: the next call is not to wait for this one again.
                self._engines.lost()
                failures.append(f"{url}: {error}")
                continue
            said = "" if status < HTTPStatus.BAD_REQUEST else _in_words(body)
            if status == HTTPStatus.NOT_IMPLEMENTED:
                without += 1
            elif status < HTTPStatus.INTERNAL_SERVER_ERROR:
                return status, said, body
            failures.append(f"{url}: {status} {said}")
        if without and without == len(urls):
            raise NoBlobStore
        if not urls:
            self._engines.lost()
        raise BlobStoreUnavailable("; ".join(failures) or "no engine has claimed a partition yet")


class _Cache:
    """The values that were used last, up to so many bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._held: OrderedDict[Blob, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, blob: Blob) -> bytes | None:
        with self._lock:
            packed = self._held.get(blob)
            if packed is not None:
                self._held.move_to_end(blob)
            return packed

    def put(self, blob: Blob, packed: bytes) -> None:
        if blob.size > self._bytes_max:
            return
        with self._lock:
            if blob not in self._held:
                self._held[blob] = packed
                self._bytes += blob.size
            while self._bytes > self._bytes_max:
                _, gone = self._held.popitem(last=False)
                self._bytes -= len(gone)


def _in_words(body: bytes) -> str:
    try:
        said = msgspec.json.decode(body, type=_Said)
    except msgspec.MsgspecError:
        return body[:200].decode("utf-8", "replace")
    return f"{said.error}: {said.detail}"
