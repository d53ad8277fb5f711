"""`make demo`: 200 applications, seven services, two engines, two workers, and what can go wrong.

    python -m examples.risk_control [--applications N] [--seed N] [--no-faults]

Exit code 0 when every run ended as computed beforehand, with nothing lost and nothing done twice.
"""

from __future__ import annotations

import argparse
import logging
import os
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from rich.console import Console
from rich.live import Live

from dalsegno.client import Client
from dalsegno.ops.embedded import EmbeddedKafka
from dalsegno.ops.embedded.ports import free_ports
from dalsegno.schemas.topics import Topics
from examples.risk_control import facts
from examples.risk_control.faults import Fault, Timeline
from examples.risk_control.flow import risk
from examples.risk_control.outage import Outage
from examples.risk_control.processes import Fleet, wait_for
from examples.risk_control.rules import SERVICES, applicant
from examples.risk_control.screen import Screen, show_facts

CLI = ["-m", "dalsegno.ops.cli"]
STARTS_PER_S = 8.0
LIMIT_S = 150.0


class Starter(threading.Thread):
    """Starts the applications at a steady pace; a broker that is away only delays it."""

    def __init__(self, client: Client, seed: int, applications: int) -> None:
        super().__init__(name="starter")
        self._client, self._seed, self._applications = client, seed, applications
        self.started: list[str] = []

    def run(self) -> None:
        begun = time.monotonic()
        for number in range(self._applications):
            time.sleep(max(0.0, begun + number / STARTS_PER_S - time.monotonic()))
            who = applicant(number, self._seed)
            name = str(who["application"])
            self.started.append(self._client.start(risk, {"applicant": who}, run_id=name))


class Demo:
    """Brings everything up, runs the applications, tears everything down."""

    def __init__(self, folder: Path, seed: int, applications: int) -> None:
        self.seed, self.applications = seed, applications
        self.ledgers = folder / "ledgers"
        self.ledgers.mkdir()
        self.kafka = EmbeddedKafka(folder / "kafka")
        self.kafka.start()
        self.ports = dict(zip((*SERVICES, "engine-1", "engine-2"), free_ports(9), strict=True))
        self.env = {
            "DALSEGNO_BOOTSTRAP_SERVERS": self.kafka.bootstrap,
            "DALSEGNO_MAC_KEYS": f"demo:{secrets.token_hex(32)}",
            "DALSEGNO_DEV": "true",
            **{
                f"RISK_CONTROL_{name.upper().replace('-', '_')}_URL": self.url(name)
                for name in SERVICES
            },
        }
        self.fleet = Fleet(folder, self.env)

    def url(self, name: str) -> str:
        """Where a service or an engine answers."""
        return f"http://127.0.0.1:{self.ports[name]}/"

    def up(self) -> None:
        """Topics, services, engines, workers; returns when all are ready."""
        subprocess.run(
            [sys.executable, *CLI, "topics", "create"],
            env={**os.environ, **self.env},
            check=True,
            capture_output=True,
        )
        for name in SERVICES:
            book = self.ledgers / f"{name}.jsonl"
            self.fleet.start(
                name,
                ["-m", "examples.risk_control.service", name, str(self.ports[name]), str(book)],
            )
        for name in ("engine-1", "engine-2"):
            self.fleet.start(
                name, [*CLI, "engine", "--name", name, "--port", str(self.ports[name])]
            )
        for name in ("worker-1", "worker-2"):
            self.fleet.start(
                name, [*CLI, "worker", "examples.risk_control.flow:risk", "--name", name]
            )
        for name in SERVICES:
            wait_for(self.url(name) + "health")
        for name in ("engine-1", "engine-2"):
            wait_for(self.url(name) + "readyz")

    def faults(self) -> list[Fault]:
        """The original accident, and the deaths of a worker, an engine and the broker."""
        fleet, kafka = self.fleet, self.kafka

        def dies(name: str, at: float, lasts_s: float) -> Fault:
            return Fault(
                at,
                f"kill -9 {name}",
                lambda: fleet.kill(name),
                lasts_s,
                lambda: fleet.restart(name),
            )

        return [
            dies("worker-1", 0.15, 0.5),
            dies("data-validation", 0.35, 5.0),
            dies("engine-1", 0.55, 1.0),
            Fault(0.75, "kill -9 the broker", kafka.kill, 1.0, lambda: _start(kafka)),
        ]

    def run(self, screen: Screen, live: Live, timeline: Timeline) -> int:
        """Start all applications, wait for their ends; returns how many ended in time."""
        begun = time.monotonic()
        with Client(bootstrap_servers=self.kafka.bootstrap) as client:
            starter = Starter(client, self.seed, self.applications)
            starter.start()
            while (now := time.monotonic()) - begun < LIMIT_S:
                started = list(starter.started)
                ended = sum(client.result(run_id) is not None for run_id in started)
                timeline.step(len(started) / self.applications, now)
                broker = "[green]up[/]" if self.kafka.alive else "[red]down[/]"
                live.update(screen.render(len(started), ended, broker, timeline.told))
                if ended == self.applications and timeline.done:
                    break
                time.sleep(0.1)
            starter.join()
            return ended

    def verified(self) -> bool:
        """`dalsegno verify`: the log folded again equals the engines' tables."""
        return (
            subprocess.run(
                [sys.executable, *CLI, "verify"],
                env={**os.environ, **self.env},
                check=False,
                capture_output=True,
            ).returncode
            == 0
        )

    def report(self, width: int) -> None:
        """`dalsegno report`: the four signals of the flow, and what troubled runs were missing."""
        subprocess.run(
            [sys.executable, *CLI, "report", "--flow", risk.name, "--last", "5"],
            env={**os.environ, **self.env, "COLUMNS": str(width)},
            check=False,
        )

    def down(self) -> None:
        self.fleet.stop()
        self.kafka.stop()


def _start(kafka: EmbeddedKafka) -> None:
    kafka.start()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="examples.risk_control", description=__doc__)
    parser.add_argument("--applications", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--no-faults", action="store_true")
    options = parser.parse_args(argv)
    console, begun = Console(), time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="dalsegno-demo-"))
    # A broker that is killed is announced by the client's log: beside the table, not across it.
    logging.basicConfig(filename=folder / "demo.log", level=logging.INFO)
    console.print(f"logs and ledgers: {folder}")
    demo = Demo(folder, options.seed, options.applications)
    try:
        demo.up()
        timeline = Timeline([] if options.no_faults else demo.faults())
        outage = Outage([demo.url(name) for name in ("engine-1", "engine-2")], "data-validation")
        outage.start()
        screen = Screen(demo.fleet, demo.ledgers, options.applications, outage)
        with Live(console=console, refresh_per_second=5) as live:
            demo.run(screen, live, timeline)
        outage.stop()
        verified = demo.verified()
        found = facts.gather(
            demo.kafka.bootstrap, Topics(), demo.ledgers, options.seed, options.applications
        )
        show_facts(console, found, verified, time.monotonic() - begun)
        demo.report(console.width)
        return 0 if found.right and verified and found.runs == options.applications else 1
    finally:
        demo.down()


if __name__ == "__main__":
    sys.exit(main())
