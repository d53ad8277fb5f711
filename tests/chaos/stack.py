"""The stack of docker-compose.yml under a project name of its own, and what can be done to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final
from urllib.parse import quote

from dalsegno.ops.embedded.ports import free_ports

ROOT: Final = Path(__file__).parents[2]
PROJECT: Final = "dalsegno-chaos"
NETWORK: Final = f"{PROJECT}_default"
ENGINES: Final = ("engine1", "engine2")
FILES: Final = ("-f", "docker-compose.yml", "-f", "tests/chaos/compose.yml")
_SETTINGS: Final = {"DALSEGNO_ARCHIVE_INTERVAL_MS": "2000"}
UP_LIMIT_S: Final = 900.0
SLOW_S: Final = 240.0


class NoDockerError(Exception):
    """This machine cannot run the stack; the message says why."""


def ensure() -> None:
    """A Docker engine and the images that are not ours. Raises `NoDockerError`."""
    done = subprocess.run(
        [ROOT / "tests" / "chaos" / "lab" / "ensure.sh"],
        env={**os.environ, "CHAOS_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise NoDockerError("; ".join(done.stderr.strip().splitlines()[-2:]) or "no reason given")


def build() -> None:
    """Our own two images, the second from the first. The host's network reaches what it reaches."""
    for recipe, tag in (
        ("ops/deploy/Dockerfile", "dalsegno:local"),
        ("tests/chaos/lab/Dockerfile", "dalsegno-chaos:local"),
    ):
        docker("build", "--network", "host", "-q", "-f", recipe, "-t", tag, ".", limit_s=UP_LIMIT_S)


def docker(*arguments: str, limit_s: float = 120.0, check: bool = True) -> str:
    """Run `docker`; its standard output. The classic builder takes base images that are here."""
    port = os.environ.setdefault("PROMETHEUS_PORT", str(free_ports(1)[0]))
    done = subprocess.run(
        ["docker", *arguments],
        cwd=ROOT,
        env={**os.environ, **_SETTINGS, "PROMETHEUS_PORT": port, "DOCKER_BUILDKIT": "0"},
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )
    if check and done.returncode:
        raise AssertionError(f"docker {' '.join(arguments)}: {done.stderr[-3_000:]}")
    return done.stdout


def container(service: str) -> str:
    return f"{PROJECT}-{service}-1"


class Stack:
    """One stack, up or down."""

    def compose(self, *arguments: str, limit_s: float = 120.0, check: bool = True) -> str:
        return docker("compose", "-p", PROJECT, *FILES, *arguments, limit_s=limit_s, check=check)

    def is_up(self) -> bool:
        return bool(self.compose("ps", "-q", "--status", "running", "driver", check=False).strip())

    def up(self) -> None:
        self.down()
        self.compose("up", "-d", "--no-build", limit_s=UP_LIMIT_S)
        self.wait_ready()
        self.wait_replicas("in_sync")

    def down(self) -> None:
        self.compose("down", "-v", "--remove-orphans", "-t", "10", limit_s=180)

    def inside(
        self, module: str, *arguments: str, limit_s: float = 60.0, check: bool = True
    ) -> str:
        """Run one of `tests.chaos.inside` in the driver; its standard output."""
        run = ("python", "-m", f"tests.chaos.inside.{module}", *arguments)
        return self.run("driver", *run, limit_s=limit_s, check=check)

    def run(self, service: str, *command: str, limit_s: float = 60.0, check: bool = True) -> str:
        """Run a command in a container; its standard output."""
        return docker("exec", container(service), *command, limit_s=limit_s, check=check)

    def fetch(self, url: str) -> dict[str, object]:
        """JSON of a service of the stack; empty while nobody answers."""
        text = self.inside("fetch", url, check=False)
        return json.loads(text) if text.strip() else {}

    def asked(self, query: str) -> float:
        """What Prometheus answers; 0 where nothing matches."""
        answer = self.fetch(f"http://prometheus:9090/api/v1/query?query={quote(query)}")
        found = answer.get("data", {}).get("result", [])  # type: ignore[attr-defined]
        return float(found[0]["value"][1]) if found else 0.0

    def wait_replicas(self, state: str) -> None:
        """Until some replica is `missed`, or all are `in_sync`."""
        self.inside("until", str(SLOW_S), state, limit_s=SLOW_S + 60)

    def wait_ready(self, *engines: str) -> None:
        """Until these engines (without any: both) have all partitions ready between them."""
        names = engines or ENGINES
        self.inside("until", str(SLOW_S), "ready", *names, limit_s=SLOW_S + 60)

    def acked(self, seed: int) -> int:
        text = self.run("driver", "wc", "-l", f"/chaos/acks-{seed}", check=False)
        return int(text.split()[0]) if text.strip() else 0

    def loads(self) -> int:
        """How many loads this stack has had."""
        return self.run("driver", "ls", "/chaos").count("acks-")

    def running(self, service: str) -> bool:
        state = json.loads(docker("inspect", "-f", "{{json .State}}", container(service)))
        return bool(state["Running"]) and not state["Restarting"]

    def kill(self, service: str) -> None:
        """kill -9, and it stays down: Docker takes it for the user's wish."""
        docker("kill", "-s", "KILL", container(service))

    def start(self, service: str) -> None:
        """Start it again, and nothing that it depends on."""
        docker("start", container(service))

    def restart(self, service: str) -> None:
        docker("restart", container(service))

    def pause(self, service: str) -> None:
        docker("pause", container(service))

    def unpause(self, service: str) -> None:
        docker("unpause", container(service))

    def fill(self, disk: str) -> None:
        """Fill a disk of the stack, `kafka1`, `engine1` or `s3`, to its last byte."""
        self.run("disk", "bash", "-c", f"head -c 1G /dev/zero > /{disk}/fill; true")

    def free(self, disk: str) -> None:
        self.run("disk", "rm", f"/{disk}/fill")

    def cut(self, service: str) -> None:
        docker("network", "disconnect", NETWORK, container(service))

    def rejoin(self, service: str) -> None:
        docker("network", "connect", "--alias", service, NETWORK, container(service))

    def set_clock(self, file: str, offset_s: float) -> None:
        """Move the clock of the processes that read this skew file."""
        code = f"import struct; open('/chaos/{file}', 'r+b').write(struct.pack('=d', {offset_s}))"
        self.run("driver", "python", "-c", code)

    def memory_mb(self) -> dict[str, float]:
        """Memory of each container, as Docker counts it (without page cache)."""
        lines = docker("stats", "--no-stream", "--format", "{{.Name}} {{.MemUsage}}").splitlines()
        found = {}
        for line in lines:
            name, used = line.split()[:2]
            if name.startswith(PROJECT):
                found[name.removeprefix(f"{PROJECT}-").removesuffix("-1")] = megabytes(used)
        return found


def megabytes(text: str) -> float:
    """`123.4MiB` and the like."""
    for unit, factor in (("GiB", 1024.0), ("MiB", 1.0), ("KiB", 1 / 1024), ("B", 2.0**-20)):
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * factor
    raise ValueError(f"no memory size: {text}")
