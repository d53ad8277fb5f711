"""A receiver of webhooks as a process of somebody else's would be: real HTTP, on a thread."""

from __future__ import annotations

import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

from standardwebhooks import Webhook


class Receiver:
    """Answers with `status`, or hangs until `release` is set; keeps what it took and verified.

    `taken`: how often each message was taken (answered with 2xx), by its id; `bodies`: what was
    posted under each id, taken or not.
    """

    def __init__(self, secret: str, status: int = 200) -> None:
        self.status = status
        self.hangs = False
        self.release = threading.Event()
        self.posts: Counter[int] = Counter()
        self.taken: Counter[str] = Counter()
        self.bodies: dict[str, set[bytes]] = {}
        self.packages: dict[str, dict[str, object]] = {}
        self._verify = Webhook(secret).verify
        self._lock = threading.Lock()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            waits: ClassVar[threading.Event] = receiver.release

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if receiver.hangs:
                    receiver.posts[0] += 1
                    self.waits.wait(60)
                    self.close_connection = True
                    return
                status = receiver.take(dict(self.headers), body)
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """The test has its own record."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where to post."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/packages"

    def take(self, headers: dict[str, str], body: bytes) -> int:
        """Verify with the reference library, and answer."""
        message = self._verify(body, {name.lower(): value for name, value in headers.items()})
        with self._lock:
            self.posts[self.status] += 1
            self.bodies.setdefault(headers["webhook-id"], set()).add(body)
            if 200 <= self.status < 300:
                name = headers["webhook-id"]
                self.taken[name] += 1
                self.packages[name] = message["data"]
            return self.status

    def runs(self) -> set[object]:
        """Runs of which it has taken a package."""
        with self._lock:
            return {package["run_id"] for package in self.packages.values()}

    def close(self) -> None:
        """Take no more."""
        self.release.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)
