"""The shop: four services, and, where it has dalsegno, an engine and two workers on a Kafka."""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from dalsegno.client import Client, Flow, RunResult
from dalsegno.ops.embedded import EmbeddedKafka
from dalsegno.ops.embedded.ports import free_ports
from examples.order import plain
from examples.order.rules import SERVICES, Order
from examples.risk_control.processes import Fleet, wait_for

CLI: Final = ["-m", "dalsegno.ops.cli"]
WORKERS: Final = ("worker-1", "worker-2")


class Shop:
    """Four services with their ledgers in a folder of its own; a context manager."""

    def __init__(self, seed: int, prefix: str = "dalsegno-order-") -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=prefix))
        ports = free_ports(len(SERVICES) + 1)
        self.engine_port = ports.pop()
        self.env = {
            f"ORDER_{name.upper()}_URL": f"http://127.0.0.1:{port}/"
            for name, port in zip(SERVICES, ports, strict=True)
        }
        self.fleet = Fleet(self.folder, self.env)
        for name, port in zip(SERVICES, ports, strict=True):
            book = self.folder / f"{name}.jsonl"
            command = ["-m", "examples.order.service", name, str(port), str(book), str(seed)]
            self.fleet.start(name, command)
        for name in SERVICES:
            wait_for(self.env[f"ORDER_{name.upper()}_URL"] + "health")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.fleet.stop()

    def plainly(self, orders: Sequence[Order]) -> None:
        """Carries orders out by plain retry, in this process."""
        os.environ.update(self.env)
        asyncio.run(plain.carry_out(orders))


class Recovered(Shop):
    """The shop with an engine and two workers. `flow`: as `module:name` for the workers."""

    def __init__(self, seed: int, flow: str) -> None:
        super().__init__(seed)
        self.kafka = EmbeddedKafka(self.folder / "kafka").start()
        self.env = {
            **self.env,
            "DALSEGNO_BOOTSTRAP_SERVERS": self.kafka.bootstrap,
            "DALSEGNO_MAC_KEYS": f"order:{secrets.token_hex(32)}",
            "DALSEGNO_DEV": "true",
        }
        subprocess.run(
            [sys.executable, *CLI, "topics", "create", "--partitions", "4"],
            env={**os.environ, **self.env},
            check=True,
            capture_output=True,
        )
        self.engines = Fleet(self.folder, self.env)
        self.engines.start(
            "engine", [*CLI, "engine", "--name", "engine", "--port", str(self.engine_port)]
        )
        for name in WORKERS:
            self.engines.start(name, [*CLI, "worker", flow, "--name", name])
        wait_for(f"http://127.0.0.1:{self.engine_port}/readyz")
        self.client = Client(bootstrap_servers=self.kafka.bootstrap)

    def carry_out(
        self,
        flow: Flow,
        orders: Sequence[Order],
        limit_s: float,
        watch: Callable[[int], bool] | None = None,
    ) -> dict[str, RunResult]:
        """Starts every order, and returns the ends that came within `limit_s`.

        `watch` is called with the number of orders that have ended, some ten times a second; True
        ends the wait.
        """
        self.client.start_many(flow, {each.name: {"order": each.facts()} for each in orders})
        found: dict[str, RunResult] = {}
        end = time.monotonic() + limit_s
        while time.monotonic() < end and len(found) < len(orders):
            for each in orders:
                result = self.client.result(each.name) if each.name not in found else None
                if result is not None:
                    found[each.name] = result
            if watch is not None and watch(len(found)):
                break
            time.sleep(0.1)
        return found

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.client.close()
        self.engines.stop()
        self.kafka.stop()
        super().__exit__(kind, error, trace)
