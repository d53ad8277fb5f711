"""Each real workflow through the engine, its makespan against max(critical path, work / width).

    python -m examples.workflow_trace [--width 16] [--seconds 5] [--tasks-max 2000]

A trace is scaled so that its bound is `--seconds`: then 1.00 would be an engine that costs nothing
and always picks the right step next.
"""

from __future__ import annotations

import argparse
import os
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from dalsegno.client import Client
from dalsegno.ops.embedded import EmbeddedKafka
from dalsegno.ops.embedded.ports import free_ports
from examples.risk_control.processes import Fleet, wait_for
from examples.workflow_trace.flows import flow_of, scale, warm_up
from examples.workflow_trace.traces import DAGS, Trace, read

CLI = ["-m", "dalsegno.ops.cli"]


class Stage:
    """One broker and one engine; a worker for each trace."""

    def __init__(self, folder: Path) -> None:
        self.kafka = EmbeddedKafka(folder / "kafka").start()
        self.env = {
            "DALSEGNO_BOOTSTRAP_SERVERS": self.kafka.bootstrap,
            "DALSEGNO_MAC_KEYS": f"example:{secrets.token_hex(32)}",
            "DALSEGNO_DEV": "true",
        }
        command = [sys.executable, *CLI, "topics", "create", "--partitions", "1"]
        subprocess.run(command, env={**os.environ, **self.env}, check=True, capture_output=True)
        self._folder = folder
        self._engine = Fleet(folder, self.env)
        (port,) = free_ports(1)
        self._engine.start("engine", [*CLI, "engine", "--port", str(port)])
        wait_for(f"http://127.0.0.1:{port}/readyz")

    def makespan_s(self, trace: Trace, width: int, seconds: float) -> float:
        """Run one trace from start to end on a worker of `width` slots."""
        env = {"TRACE_INSTANCE": trace.instance, "TRACE_WIDTH": str(width)}
        fleet = Fleet(self._folder, {**self.env, **env, "TRACE_SECONDS": str(seconds)})
        flows = [f"examples.workflow_trace.worker:{name}" for name in ("flow", "warm_up")]
        command = [*CLI, "worker", *flows, "--name", "worker"]
        fleet.start("worker", [*command, "--concurrency", str(width)])
        try:
            with Client(bootstrap_servers=self.kafka.bootstrap) as client:
                first = client.start(warm_up, {})
                client.wait(first, "60s")
                begun = time.monotonic()
                run_id = client.start(flow_of(scale(trace, width, seconds)), {})
                result = client.wait(run_id, "10m")
                took = time.monotonic() - begun
        finally:
            fleet.stop()
        if not result.succeeded:
            raise RuntimeError(f"{trace.instance} ended {result.state}: {result.reason}")
        return took

    def down(self) -> None:
        self._engine.stop()
        self.kafka.stop()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="examples.workflow_trace", description=__doc__)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--tasks-max", type=int, default=2_000)
    options = parser.parse_args(argv)
    console = Console()
    if not DAGS.exists():
        console.print(f"the recorded workflows are not on this machine ({DAGS.name})")
        return 2
    table = Table("workflow", "tasks", "bound, s", "makespan, s", "ratio")
    stage = Stage(Path(tempfile.mkdtemp(prefix="dalsegno-traces-")))
    try:
        for trace in read():
            if len(trace.tasks) <= options.tasks_max:
                took = stage.makespan_s(trace, options.width, options.seconds)
                row = (f"{options.seconds:.1f}", f"{took:.2f}", f"{took / options.seconds:.2f}")
                table.add_row(trace.instance, str(len(trace.tasks)), *row)
    finally:
        stage.down()
        console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
