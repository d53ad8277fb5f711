"""A proxy before a real S3 that can be told what to do wrong."""

from __future__ import annotations

import http.client
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from dalsegno.ops.embedded.s3 import EmbeddedS3
from dalsegno.storage.archive.s3 import S3Objects

_HOP: Final = frozenset({"connection", "transfer-encoding", "content-length"})


class Mood(StrEnum):
    """What it does with a request."""

    FAIR = "fair"
    DOWN = "down"
    """Closes each connection."""
    HANGS = "hangs"
    """Takes a request and never answers."""
    DENIES = "denies"
    FULL = "full"
    """Refuses to put anything."""
    LIES = "lies"
    """Changes a byte of what is got."""
    CUTS = "cuts"
    """Ends an answer in its middle."""
    HALVES = "halves"
    """Says that an object is put, and has put half of it."""
    HOLDS_MANIFESTS = "holds manifests"
    """Never answers who puts a manifest, and does not put it."""


class StoreProxy:
    """`mood` may be set at any time; `seen` counts requests by mood and method."""

    def __init__(self, s3: EmbeddedS3) -> None:
        self.mood = Mood.FAIR
        self.seen: Counter[tuple[Mood, str]] = Counter()
        self.closing = threading.Event()
        self._s3 = s3
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.server.daemon_threads = True

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    @property
    def behind(self) -> tuple[str, int]:
        assert self._s3.port is not None
        return "127.0.0.1", self._s3.port

    def put_half(self, path: str, body: bytes) -> None:
        objects = S3Objects(self._s3.settings())
        try:
            objects.put(path.removeprefix(f"/{self._s3.bucket}/"), body[: len(body) // 2])
        finally:
            objects.close()


@contextmanager
def store_proxy(s3: EmbeddedS3) -> Iterator[StoreProxy]:
    proxy = StoreProxy(s3)
    thread = threading.Thread(target=proxy.server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.closing.set()
        proxy.server.shutdown()
        proxy.server.server_close()
        thread.join()


def _handler(proxy: StoreProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            mood, body = proxy.mood, self.rfile.read(int(self.headers.get("Content-Length") or 0))
            proxy.seen[mood, self.command] += 1
            manifest = self.command == "PUT" and "/manifests/" in self.path
            if mood is Mood.HANGS or (mood is Mood.HOLDS_MANIFESTS and manifest):
                proxy.closing.wait()
            elif mood is Mood.DENIES:
                self._refuse(403, "AccessDenied")
            elif mood is Mood.FULL and self.command == "PUT":
                self._refuse(507, "InsufficientStorage")
            elif mood is Mood.HALVES and self.command == "PUT":
                proxy.put_half(self.path, body)
                self._answer(200, {}, b"")
            elif mood is not Mood.DOWN:
                self._forward(mood, body)
                return
            self.close_connection = True

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = handle_any  # noqa: N815 - its names

        def _forward(self, mood: Mood, body: bytes) -> None:
            connection = http.client.HTTPConnection(*proxy.behind, timeout=30)
            try:
                connection.putrequest(
                    self.command, self.path, skip_host=True, skip_accept_encoding=True
                )
                for name, value in self.headers.items():
                    if name.lower() != "expect":
                        connection.putheader(name, value)
                connection.endheaders(body)
                answer = connection.getresponse()
                found = answer.read()
            except OSError:
                self.close_connection = True
                return
            finally:
                connection.close()
            headers = {n: v for n, v in answer.getheaders() if n.lower() not in _HOP}
            size = len(found)
            if self.command == "HEAD":
                size = int(answer.getheader("Content-Length") or 0)
            elif self.command == "GET" and "/segments/" in self.path and found:
                if mood is Mood.LIES:
                    middle = len(found) // 2
                    found = found[:middle] + bytes([found[middle] ^ 1]) + found[middle + 1 :]
                elif mood is Mood.CUTS:
                    found = found[: len(found) // 2]
                    self.close_connection = True
            self._answer(answer.status, headers, found, size)

        def _refuse(self, status: int, code: str) -> None:
            text = f"<Error><Code>{code}</Code><Message>as the test asked</Message></Error>"
            self._answer(status, {"Content-Type": "application/xml"}, text.encode())

        def _answer(
            self, status: int, headers: dict[str, str], body: bytes, size: int | None = None
        ) -> None:
            try:
                self.send_response_only(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body) if size is None else size))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)
            except OSError:
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            """Nothing is said."""

    return Handler
