"""An engine and a worker as an operator runs them: by the environment, which the test has set."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dalsegno.client import Flow, Worker
from dalsegno.ops.embedded.ports import free_ports

ROOT = Path(__file__).parents[2]


@contextmanager
def engine(log: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    port = free_ports(1)[0]
    command = [sys.executable, "-m", "dalsegno.ops.cli", "engine", "--port", str(port)]
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=ROOT, env=dict(os.environ), stdout=out, stderr=subprocess.STDOUT
        )
    try:
        yield process, port
    finally:
        process.terminate()
        process.wait(20)


def ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as got:
            return len(json.load(got)["partitions"]) == 2
    except (urllib.error.HTTPError, OSError):
        return False


@contextmanager
def working(flow: Flow) -> Iterator[Worker]:
    worker = Worker([flow], name=f"w-{os.environ['DALSEGNO_PREFIX']}", concurrency=4)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join(40)
