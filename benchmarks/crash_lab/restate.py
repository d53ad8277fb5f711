"""Restate under the crash workload, where it can be installed (npm: server, PyPI: SDK)."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.crash_lab import body
from benchmarks.crash_lab.installing import (
    CACHE,
    NotInstallable,
    worker_command,
    worker_environment,
)
from benchmarks.crash_lab.system import cpu_seconds, memory_mb

from dalsegno.ops.embedded.ports import free_ports

SERVER = "@restatedev/restate-server@1.7.12"


def install() -> Callable[[], Restate]:
    """Fetches server binary and SDK once. Raises `NotInstallable`."""
    server = CACHE / "node_modules/@restatedev/restate-server-linux-x64/bin/restate-server"
    python = CACHE / "venv/bin/python"
    if shutil.which("npm") is None:
        raise NotInstallable("npm is not on PATH")
    CACHE.mkdir(parents=True, exist_ok=True)
    try:
        if not server.exists():
            command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", SERVER]
            subprocess.run(command, cwd=CACHE, check=True, capture_output=True)
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", CACHE / "venv"], check=True)
            packages = ["restate-sdk==1.3.0", "hypercorn"]
            subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    except (subprocess.CalledProcessError, OSError) as error:
        raise NotInstallable(f"installing Restate failed: {error}") from error
    return lambda: Restate(server, python)


def call(url: str, body_json: object, key: str = "") -> object:
    """POST JSON; an idempotency key when given. Raises `urllib.error.URLError`."""
    headers = {"content-type": "application/json"}
    if key:
        headers["idempotency-key"] = key
    request = urllib.request.Request(url, json.dumps(body_json).encode(), headers)
    with urllib.request.urlopen(request, timeout=120) as response:
        text = response.read()
        return json.loads(text) if text else None


class Restate:
    """One server, one worker process serving the same step body."""

    name = "restate"

    def __init__(self, server: Path, python: Path) -> None:
        self._binary, self._python = server, python
        self._used = {"server": 0.0, "worker": 0.0}

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
        self._start_server()
        self._start_worker()
        admin = f"http://127.0.0.1:{self._ports['admin']}"
        self._retry(f"{admin}/deployments", {"uri": f"http://127.0.0.1:{self._ports['worker']}"})

    def _retry(self, url: str, body_json: object, key: str = "", limit_s: float = 60.0) -> object:
        end = time.monotonic() + limit_s
        while True:
            try:
                return call(url, body_json, key)
            except (urllib.error.URLError, OSError):
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def _start_server(self) -> None:
        with (self._folder / "server.log").open("ab") as log:
            command = [str(self._binary), "-c", str(self._folder / "restate.toml"), "--no-logo"]
            self._server = subprocess.Popen(command, env=self._env, stdout=log, stderr=log)

    def _start_worker(self) -> None:
        command = worker_command(self._python, "restate_worker", str(self._ports["worker"]))
        with (self._folder / "worker.log").open("ab") as log:
            self._worker = subprocess.Popen(command, env=self._env, stdout=log, stderr=log)

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

    def kill_worker(self) -> None:
        self._used["worker"] += cpu_seconds(self._worker.pid)
        self._worker.kill()
        self._worker.wait()
        self._start_worker()

    def kill_server(self, *, restart: bool) -> None:
        if not restart:
            raise NotInstallable("one server has no standby")
        self._used["server"] += cpu_seconds(self._server.pid)
        self._server.kill()
        self._server.wait()
        self._start_server()

    def cpu_s(self) -> dict[str, float]:
        return {
            "server": self._used["server"] + cpu_seconds(self._server.pid),
            "worker": self._used["worker"] + cpu_seconds(self._worker.pid),
        }

    def memory_mb(self) -> dict[str, float]:
        return {"server": memory_mb(self._server.pid), "worker": memory_mb(self._worker.pid)}

    def run_once(self, number: int) -> None:
        call(self._url("flow"), f"l{number}", f"l{number}")

    def down(self) -> None:
        for process in (self._worker, self._server):
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
