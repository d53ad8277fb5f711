"""What an example runs on: a Kafka, the topics, an engine, and processes that can be killed.

A test gives its own broker and a prefix; without one the stage starts an embedded Kafka of its own.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from dalsegno.ops.embedded import EmbeddedKafka
from dalsegno.ops.embedded.ports import free_ports
from dalsegno.schemas.topics import Topics
from examples.risk_control.processes import Fleet, wait_for

CLI: Final = ["-m", "dalsegno.ops.cli"]


class Ran(NamedTuple):
    """A command of `dalsegno` that has ended."""

    code: int
    out: str
    err: str


class Stage:
    """A context manager: what it started ends with it. `folder`: logs, ledgers and keys."""

    def __init__(self, folder: Path, *, bootstrap: str = "", prefix: str = "dalsegno") -> None:
        self.folder = folder
        self.kafka = None if bootstrap else EmbeddedKafka(folder / "kafka").start()
        self.bootstrap = bootstrap or (self.kafka.bootstrap if self.kafka is not None else "")
        self.prefix = prefix
        self.topics = Topics(prefix)
        self.env: dict[str, str] = {
            "DALSEGNO_BOOTSTRAP_SERVERS": self.bootstrap,
            "DALSEGNO_PREFIX": prefix,
            "DALSEGNO_MAC_KEYS": f"example:{secrets.token_hex(32)}",
            "DALSEGNO_DEV": "true",
        }
        self.fleet = Fleet(folder, self.env)
        self.engine_url = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.fleet.stop()
        if self.kafka is not None:
            self.kafka.stop()

    def cli(self, *arguments: str) -> Ran:
        """Run a command of `dalsegno` to its end."""
        ran = subprocess.run(
            [sys.executable, *CLI, *arguments],
            env={**os.environ, **self.env},
            check=False,
            capture_output=True,
            text=True,
        )
        return Ran(ran.returncode, ran.stdout, ran.stderr)

    def must(self, *arguments: str) -> str:
        """As `cli`, and returns what it said. Raises `RuntimeError` if it failed."""
        ran = self.cli(*arguments)
        if ran.code != 0:
            raise RuntimeError(f"dalsegno {' '.join(arguments)}: {ran.err or ran.out}")
        return ran.out

    def prepare(self, queues: Sequence[str] = (), partitions: int = 4, policy: str = "") -> None:
        """Make the topics, and put `policy` (TOML) into force."""
        named = [word for queue in queues for word in ("--queue", queue)]
        self.must("topics", "create", "--partitions", str(partitions), *named)
        if policy:
            file = self.folder / "policy.toml"
            file.write_text(policy)
            self.must("policy", "apply", str(file), "--yes")

    def service(self, name: str, module: str, *arguments: str) -> str:
        """Start `python -m MODULE NAME PORT ARGUMENTS…`; returns its URL, with a slash."""
        (port,) = free_ports(1)
        self.fleet.start(name, ["-m", module, name, str(port), *arguments])
        return f"http://127.0.0.1:{port}/"

    def engine(self, name: str = "engine") -> None:
        """Start the engine."""
        (port,) = free_ports(1)
        self.engine_url = f"http://127.0.0.1:{port}/"
        self.fleet.start(name, [*CLI, "engine", "--name", name, "--port", str(port)])

    def worker(self, name: str, flow: str, *options: str) -> None:
        """Start a worker of `flow` (MODULE:FLOW) under a name of its own on this stage."""
        command = [*CLI, "worker", flow, "--name", f"{self.prefix}-{name}", *options]
        self.fleet.start(name, command)

    def ready(self, urls: Sequence[str]) -> None:
        """Wait for services at `urls` and for the engine."""
        for url in urls:
            wait_for(url + "health")
        wait_for(self.engine_url + "readyz")

    def again(self, name: str) -> None:
        """kill -9, and start again at once under the same name."""
        self.fleet.kill(name)
        self.fleet.restart(name)

    def verified(self) -> bool:
        """`dalsegno verify`: the log folded again equals the engine's tables."""
        return self.cli("verify").code == 0
