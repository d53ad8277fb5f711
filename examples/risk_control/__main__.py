"""`make demo`: 200 applications, seven services, two engines, two workers, and what can go wrong;
then 20 more, while an engine loses its disk, and one run's history from S3 alone.

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
from dalsegno.ops.embedded.s3 import EmbeddedS3
from dalsegno.schemas.topics import Topics
from examples.closing_table import show_facts
from examples.risk_control import facts, second_act
from examples.risk_control.faults import Fault, Timeline
from examples.risk_control.flow import risk
from examples.risk_control.outage import Outage
from examples.risk_control.processes import Fleet, wait_for
from examples.risk_control.rules import SERVICES, applicant
from examples.risk_control.screen import Screen, lines

CLI = ["-m", "dalsegno.ops.cli"]
STARTS_PER_S = 8.0
LIMIT_S = 150.0
ENGINES = ("engine-1", "engine-2")
SECOND_ACT = 20
"""Applications of the second act."""


class Starter(threading.Thread):
    """Starts the applications at a steady pace; a broker that is away only delays it."""

    def __init__(self, client: Client, seed: int, applications: range) -> None:
        super().__init__(name="starter")
        self._client, self._seed, self._applications = client, seed, applications
        self.started: list[str] = []

    def run(self) -> None:
        begun = time.monotonic()
        for place, number in enumerate(self._applications):
            time.sleep(max(0.0, begun + place / STARTS_PER_S - time.monotonic()))
            who = applicant(number, self._seed)
            name = str(who["application"])
            self.started.append(self._client.start(risk, {"applicant": who}, run_id=name))


class Demo:
    """Brings everything up, runs the applications, tears everything down."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.seed = seed
        self.ledgers = folder / "ledgers"
        self.ledgers.mkdir()
        self.kafka = EmbeddedKafka(folder / "kafka")
        self.kafka.start()
        self.s3 = EmbeddedS3(folder / "s3")
        self.s3.start()
        self.ports = dict(zip((*SERVICES, *ENGINES), free_ports(9), strict=True))
        self.env = {
            "DALSEGNO_BOOTSTRAP_SERVERS": self.kafka.bootstrap,
            "DALSEGNO_MAC_KEYS": f"demo:{secrets.token_hex(32)}",
            "DALSEGNO_DEV": "true",
            **second_act.settings(self.s3),
            **{
                f"RISK_CONTROL_{name.upper().replace('-', '_')}_URL": self.url(name)
                for name in SERVICES
            },
        }
        self.fleet = Fleet(folder, self.env)
        self.disks = {name: second_act.Disk(folder, name) for name in ENGINES}

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
        for name in ENGINES:
            self.fleet.start(
                name,
                [*CLI, "engine", "--name", name, "--port", str(self.ports[name])],
                self.disks[name].environment,
            )
        for name in ("worker-1", "worker-2"):
            self.fleet.start(
                name, [*CLI, "worker", "examples.risk_control.flow:risk", "--name", name]
            )
        for name in SERVICES:
            wait_for(self.url(name) + "health")
        for name in ENGINES:
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

    def run(
        self, applications: range, console: Console, outage: Outage, timeline: Timeline
    ) -> None:
        """Start these applications, and wait for their ends and those of the faults."""
        begun = time.monotonic()
        screen = Screen(self.fleet, self.ledgers, len(applications), outage)
        with (
            Client(bootstrap_servers=self.kafka.bootstrap) as client,
            Live(console=console, refresh_per_second=5) as live,
        ):
            starter = Starter(client, self.seed, applications)
            starter.start()
            while (now := time.monotonic()) - begun < LIMIT_S:
                started = list(starter.started)
                ended = sum(client.result(run_id) is not None for run_id in started)
                timeline.step(len(started) / len(applications), now)
                broker = "[green]up[/]" if self.kafka.alive else "[red]down[/]"
                live.update(screen.render(len(started), ended, broker, timeline.told))
                if ended == len(applications) and timeline.done:
                    break
                time.sleep(0.1)
            starter.join()

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

    def history(self, console: Console, run_id: str) -> bool:
        """All processes and Kafka end; then one run's history, from the bucket alone."""
        env = {**os.environ, **self.env}
        whole = second_act.wait_archived(env, run_id)
        self.fleet.stop()
        self.kafka.stop()
        console.print(f"Kafka is off. Run {run_id}, from S3 alone:")
        console.print(second_act.history(env, run_id), highlight=False, markup=False)
        return whole

    def down(self) -> None:
        self.fleet.stop()
        self.kafka.stop()
        self.s3.stop()


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
    demo = Demo(folder, options.seed)
    first, both = range(options.applications), options.applications + SECOND_ACT
    try:
        demo.up()
        faults = not options.no_faults
        outage = Outage([demo.url(name) for name in ENGINES], "data-validation")
        outage.start()
        demo.run(first, console, outage, Timeline(demo.faults() if faults else []))
        outage.stop()
        lost = demo.disks["engine-2"].fault(0.5, demo.fleet)
        demo.run(range(len(first), both), console, outage, Timeline([lost] if faults else []))
        wait_for(demo.url("engine-2") + "readyz")
        verified = demo.verified()
        found = facts.gather(demo.kafka.bootstrap, Topics(), demo.ledgers, options.seed, both)
        demo.report(console.width)
        title, seconds = "facts, from the services' ledgers and the log", time.monotonic() - begun
        show_facts(console, title, lines(found), verified=verified, seconds=seconds)
        known = demo.history(console, f"app-{options.seed}-{len(first):04d}")
        console.print(f"whole demo: {time.monotonic() - begun:.0f} s")
        return 0 if found.right and verified and known and found.runs == both else 1
    finally:
        demo.down()


if __name__ == "__main__":
    sys.exit(main())
