"""Restate under the crash workload, where it can be installed (npm: server, PyPI: SDK)."""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks.crash_lab import body
from benchmarks.crash_lab.installing import (
    CACHE,
    NotInstallable,
    python_with,
    worker_command,
    worker_environment,
)
from benchmarks.crash_lab.served import Served

from dalsegno.ops.embedded.child import Child
from dalsegno.ops.embedded.ports import free_ports

SERVER: Final = "@restatedev/restate-server@1.7.12"
_PACKAGES: Final = ("restate-sdk==1.3.0", "hypercorn==0.18.0")
_CALL_S_MAX: Final = 120.0
_END_S_MAX: Final = 15.0


def install() -> Callable[[], Restate]:
    """Fetches server binary and SDK once. Raises `NotInstallable`."""
    server = CACHE / "node_modules/@restatedev/restate-server-linux-x64/bin/restate-server"
    if shutil.which("npm") is None:
        raise NotInstallable("npm is not on PATH")
    CACHE.mkdir(parents=True, exist_ok=True)
    try:
        if not server.exists():
            command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", SERVER]
            subprocess.run(command, cwd=CACHE, check=True, capture_output=True)
    except (subprocess.CalledProcessError, OSError) as error:
        raise NotInstallable(f"installing Restate failed: {error}") from error
    python = python_with("restate", *_PACKAGES)
    return lambda: Restate(server, python)


def call(url: str, body_json: object, key: str = "") -> object:
    """POST JSON; an idempotency key when given. Raises `urllib.error.URLError`."""
    request = urllib.request.Request(url, json.dumps(body_json).encode(), _headers(key))
    with urllib.request.urlopen(request, timeout=_CALL_S_MAX) as response:
        text = response.read()
        return json.loads(text) if text else None


def _headers(key: str) -> dict[str, str]:
    headers = {"content-type": "application/json"}
    return {**headers, "idempotency-key": key} if key else headers


class Restate(Served):
    """One server, one worker process serving the same step body."""

    name = "restate"

    def __init__(self, server: Path, python: Path) -> None:
        super().__init__()
        self._binary, self._python = server, python
        self._connections = threading.local()

    def up(self, folder: Path, sleep_s: float) -> None:
        self._folder = folder
        names = ("ingress", "admin", "node", "worker")
        self._ports = dict(zip(names, free_ports(4), strict=True))
        self._env = worker_environment(folder, sleep_s)
        (folder / "restate.toml").write_text(
            f'base-dir = "{folder}/restate"\nnode-name = "n1"\ncluster-name = "bench"\n'
            f'auto-provision = true\nbind-ip = "127.0.0.1"\nbind-port = {self._ports["node"]}\n'
            f"disable-telemetry = true\n[ingress]\nbind-port = {self._ports['ingress']}\n"
            f"[admin]\nbind-port = {self._ports['admin']}\n"
        )
        self._commands = {
            "server": [str(self._binary), "-c", str(folder / "restate.toml"), "--no-logo"],
            "worker": worker_command(self._python, "restate_worker", str(self._ports["worker"])),
        }
        with ExitStack() as ends:
            for part in self._commands:
                self._children[part] = Child(folder / f"{part}.pid")
                ends.callback(self._children[part].end, _END_S_MAX)
                self._start(part)
            admin = f"http://127.0.0.1:{self._ports['admin']}"
            worker = f"http://127.0.0.1:{self._ports['worker']}"
            self._retry(f"{admin}/deployments", {"uri": worker})
            self._ends = ends.pop_all()

    def _retry(self, url: str, body_json: object, key: str = "", limit_s: float = 60.0) -> object:
        end = time.monotonic() + limit_s
        while True:
            try:
                return call(url, body_json, key)
            except (urllib.error.URLError, OSError):
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def _url(self, path: str) -> str:
        return f"http://127.0.0.1:{self._ports['ingress']}/bench/{path}"

    def submit(self, runs: int) -> None:
        for number in range(runs):
            self._retry(self._url("flow/send"), f"r{number}", f"r{number}")

    def wait_results(self, runs: int, limit_s: float) -> None:
        def wait(number: int) -> object:
            return self._retry(self._url("flow"), f"r{number}", f"r{number}", limit_s)

        with ThreadPoolExecutor(min(runs, 200)) as pool:
            results = list(pool.map(wait, range(runs)))
        if results != [sum(range(body.STEPS))] * runs:
            raise AssertionError(f"unexpected results: {results[:3]}")

    def run_once(self, number: int) -> None:
        """Over one connection of the calling thread."""
        connection = getattr(self._connections, "ingress", None)
        if connection is None:
            connection = http.client.HTTPConnection(
                "127.0.0.1", self._ports["ingress"], timeout=_CALL_S_MAX
            )
            self._connections.ingress = connection
            self._ends.callback(connection.close)
        run = f"l{number}"
        connection.request("POST", "/bench/flow", json.dumps(run).encode(), _headers(run))
        response = connection.getresponse()
        said = response.read()
        if response.status != http.client.OK:
            raise AssertionError(f"{run}: {response.status} {said[:200]!r}")
