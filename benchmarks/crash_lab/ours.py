"""dalsegno under the crash workload: embedded Kafka, one engine (or two), one worker."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks.crash_lab.flow import flow
from benchmarks.crash_lab.system import cpu_seconds, memory_mb
from examples.risk_control.processes import wait_for

from dalsegno.client import Client
from dalsegno.ops.embedded import EmbeddedKafka
from dalsegno.ops.embedded.child import Child
from dalsegno.ops.embedded.ports import free_ports

CLI = [sys.executable, "-m", "dalsegno.ops.cli"]
_END_S_MAX: Final = 12.0


class Dalsegno:
    """One worker; `engines` 2 has a standby that takes over. `works_on`: its flow, by module and
    name.
    """

    name = "dalsegno"

    def __init__(
        self,
        *,
        engines: int = 1,
        partitions: int = 4,
        works_on: str = "benchmarks.crash_lab.flow:flow",
        concurrency: int = 200,
    ) -> None:
        self._engines, self._partitions = engines, partitions
        self._works_on, self._concurrency = works_on, concurrency
        self._children: dict[str, Child] = {}
        self._used: dict[str, float] = {}
        self._ends = ExitStack()

    def up(self, folder: Path, sleep_s: float) -> None:
        self._folder = folder
        with ExitStack() as ends:
            self._up(sleep_s, ends)
            self._ends = ends.pop_all()

    def _up(self, sleep_s: float, ends: ExitStack) -> None:
        folder = self._folder
        self.kafka = EmbeddedKafka(folder / "kafka")
        ends.callback(self.kafka.stop)
        self.kafka.start()
        self._env = {
            **os.environ,
            "DALSEGNO_BOOTSTRAP_SERVERS": self.kafka.bootstrap,
            "DALSEGNO_MAC_KEYS": f"bench:{secrets.token_hex(32)}",
            "DALSEGNO_DEV": "true",
            "TMPDIR": str(folder),  # where names of workers are claimed: other labs use them too
            "CRASH_FOLDER": str(folder),
            "CRASH_SLEEP_S": str(sleep_s),
        }
        subprocess.run(
            [*CLI, "topics", "create", "--partitions", str(self._partitions)],
            env=self._env,
            check=True,
            capture_output=True,
        )
        self._ports = free_ports(self._engines)
        for name in ("worker", *(f"engine-{number}" for number in range(self._engines))):
            self._children[name] = Child(folder / f"{name}.pid")
            ends.callback(self._children[name].end, _END_S_MAX)
            self._start(name)
        for port in self._ports:
            wait_for(f"http://127.0.0.1:{port}/readyz")
        self.client = self._client = Client(bootstrap_servers=self.kafka.bootstrap)
        ends.callback(self.client.close)

    def _start(self, name: str) -> None:
        if name == "worker":
            options = ["--name", "worker", "--concurrency", str(self._concurrency)]
            command = [*CLI, "worker", self._works_on, *options]
        else:
            port = self._ports[int(name.removeprefix("engine-"))]
            command = [*CLI, "engine", "--name", name, "--port", str(port)]
        with (self._folder / f"{name}.log").open("ab") as log:
            self._children[name].spawn(command, log, self._env)

    def _pid(self, name: str) -> int:
        end = time.monotonic() + 10
        while time.monotonic() < end:
            pid = self._children[name].pid
            if pid is not None:
                return pid
            time.sleep(0.002)
        raise TimeoutError(f"{name} has no pid")

    def _kill(self, name: str) -> None:
        self._used[name] = self._used.get(name, 0.0) + cpu_seconds(self._pid(name))
        self._children[name].kill()

    def submit(self, runs: int) -> None:
        self._client.start_many(flow, {f"r{number}": {} for number in range(runs)})

    def wait_results(self, runs: int, limit_s: float) -> None:
        end = time.monotonic() + limit_s
        for number in range(runs):
            result = self._client.wait(f"r{number}", max(1, int((end - time.monotonic()) * 1e3)))
            if result.context is None or len(result.context) != len(list(flow)):
                raise AssertionError(f"r{number} ended as {result}")

    def kill_worker(self) -> None:
        self.stop_worker()
        self.start_worker()

    def stop_worker(self) -> None:
        """kill -9 of the worker, which stays away."""
        self._kill("worker")

    def start_worker(self) -> None:
        """The worker comes back under its name."""
        self._start("worker")

    def command(self, *arguments: str) -> str:
        """Runs a command of `dalsegno` against this system; returns what it prints."""
        done = subprocess.run(
            [*CLI, *arguments], env=self._env, check=True, capture_output=True, text=True
        )
        return done.stdout

    def metrics(self, name: str) -> list[float]:
        """The values of one metric, of all engines and labels."""
        found: list[float] = []
        for port in self._ports:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
                lines = page.read().decode().splitlines()
            found += [float(line.split()[-1]) for line in lines if line.startswith(name)]
        return found

    def kill_server(self, *, restart: bool) -> None:
        self._kill("engine-0")
        if restart:
            self._start("engine-0")

    def _alive(self) -> list[str]:
        return [name for name, child in self._children.items() if child.alive]

    def cpu_s(self) -> dict[str, float]:
        parts = {"broker": cpu_seconds(self.kafka.pid), "engine": 0.0, "worker": 0.0}
        for name in self._alive():
            part = "worker" if name == "worker" else "engine"
            parts[part] += cpu_seconds(self._pid(name)) + self._used.get(name, 0.0)
        return parts

    def memory_mb(self) -> dict[str, float]:
        parts = {"broker": memory_mb(self.kafka.pid), "engine": 0.0, "worker": 0.0}
        for name in self._alive():
            parts["worker" if name == "worker" else "engine"] += memory_mb(self._pid(name))
        return parts

    def run_once(self, number: int) -> None:
        self._client.start(flow, {}, run_id=f"l{number}")
        self._client.wait(f"l{number}", "30s")

    def down(self) -> None:
        self._ends.close()
