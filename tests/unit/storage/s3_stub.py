"""An S3 that misbehaves in one chosen way. It checks no signatures."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from dalsegno.storage.archive.s3_settings import S3Settings


@dataclass
class Stub:
    """What is stored, what was asked, and how it misbehaves.

    `status`: answer every request so, with `code`. `refuse_checksums`, `demand_md5`: as some
    services do. `cut`: bytes that are missing at the end of bodies, under a right length. `hang`:
    never answer. `lose_answers`: do what was asked, then break the connection, so many times.
    """

    objects: dict[str, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    status: int = 0
    code: str = ""
    refuse_checksums: bool = False
    demand_md5: bool = False
    cut: int = 0
    hang: bool = False
    lose_answers: int = 0
    refuse_delete: str = ""
    port: int = 0
    released: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def settings(self, **more: object) -> S3Settings:
        made: dict[str, object] = {
            "bucket": "b",
            "endpoint": f"http://127.0.0.1:{self.port}",
            "region": "us-east-1",
            "access_key_id": "k",
            "secret_access_key": "s",
            "path_style": True,
            "attempts": 2,
            "connect_timeout_ms": 500,
            "read_timeout_ms": 500,
        }
        return S3Settings(**{**made, **more})  # type: ignore[arg-type]


def _error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>as the test asked</Message></Error>".encode()


def _handler(stub: Stub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

        def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
            if stub.lose_answers > 0:
                stub.lose_answers -= 1
                self.close_connection = True
                return
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            if "Content_Length" not in headers:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body[: len(body) - stub.cut] if stub.cut else body)
            if stub.cut:
                self.close_connection = True

        def handle_any(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            data = self.rfile.read(length)
            url = urlsplit(self.path)
            key = url.path.removeprefix("/b").lstrip("/")
            with stub.lock:
                stub.requests.append(f"{self.command} {self.path}")
            if stub.hang:
                stub.released.wait(10)
            if stub.status:
                return self.answer(stub.status, _error(stub.code))
            told = [n for n in self.headers if n.lower().startswith("x-amz-checksum")]
            told += [n for n in self.headers if n.lower() == "x-amz-sdk-checksum-algorithm"]
            if stub.refuse_checksums and (told or "x-amz-trailer" in self.headers):
                return self.answer(411, _error("MissingContentLength"))
            query = parse_qs(url.query, keep_blank_values=True)
            with stub.lock:
                self.do(key, data, query)
            return None

        def do(self, key: str, data: bytes, query: dict[str, list[str]]) -> None:
            if self.command == "PUT":
                if self.headers.get("If-None-Match") == "*" and key in stub.objects:
                    return self.answer(412, _error("PreconditionFailed"))
                stub.objects[key] = data
                return self.answer(200)
            if self.command == "POST" and "delete" in query:
                if stub.demand_md5 and "Content-MD5" not in self.headers:
                    return self.answer(400, _error("MissingContentMD5"))
                return self.answer(200, b"<DeleteResult/>")
            if self.command == "DELETE":
                if stub.refuse_delete and key.startswith(stub.refuse_delete):
                    return self.answer(403, _error("AccessDenied"))
                stub.objects.pop(key, None)
                return self.answer(204)
            if key not in stub.objects:
                return self.answer(404, _error("NoSuchKey"))
            body = stub.objects[key]
            status = 200
            asked = self.headers.get("Range")
            if asked:
                first, _, last = asked.removeprefix("bytes=").partition("-")
                body = body[int(first) : int(last) + 1 if last else None]
                status = 206
            modified = {"Last_Modified": "Mon, 30 Nov 2026 06:00:00 GMT"}
            return self.answer(status, body, **modified)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any  # noqa: N815

    return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


@contextmanager
def stub_s3() -> Iterator[Stub]:
    """A stub, served until the end of the block."""
    stub = Stub()
    server = _Server(("127.0.0.1", 0), _handler(stub))
    stub.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield stub
    finally:
        stub.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
