"""The simulation's receiver behind HTTP: honours keys, refuses an epoch lower than one it saw."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.simulation.receiver import Call, Receiver


@contextmanager
def serving(receiver: Receiver) -> Iterator[str]:
    """Serve it on a free port; yields the address."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                number = len(receiver.calls)
                call = Call(**said, source_offset=0, at_ms=0, result=f"result {number}")
                result = receiver.act(call)
            body = json.dumps(result).encode()
            self.send_response(200 if result is not None else 409)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Quiet."""

        def handle(self) -> None:
            try:
                super().handle()
            except ConnectionError:
                self.close_connection = True  # the worker was killed in the middle

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
