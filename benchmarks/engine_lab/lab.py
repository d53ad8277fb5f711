"""A broker, topics and engine processes for benchmarks, and what they cost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from dalsegno.ops.embedded import EmbeddedKafka
from dalsegno.ops.embedded.ports import free_ports
from dalsegno.streams.engine.settings import EngineSettings
from dalsegno.streams.engine.topics_admin import TopicAdmin

ROOT = Path(__file__).parents[2]
KEY_HEX = "0123456789abcdef" * 4
_TICKS = os.sysconf("SC_CLK_TCK")


def settings(bootstrap: str, prefix: str) -> EngineSettings:
    """Settings of an engine of these benchmarks."""
    return EngineSettings.model_validate(
        {
            "bootstrap_servers": bootstrap,
            "prefix": prefix,
            "dev": True,
            "mac_keys": {"k1": bytes.fromhex(KEY_HEX)},
        }
    )


def create_topics(bootstrap: str, prefix: str, partitions: int) -> EngineSettings:
    """Fresh topics."""
    made = settings(bootstrap, prefix)
    TopicAdmin(made).create((), partitions)
    return made


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


class EngineRun:
    """One engine process."""

    def __init__(self, bootstrap: str, prefix: str, log: Path, **env: str) -> None:
        self.port = free_ports(1)[0]
        self.began = time.perf_counter()
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "dalsegno.ops.cli", "engine"]
                if env.pop("cli", "")
                else [sys.executable, "-m", "benchmarks.engine_lab.process"],
                cwd=ROOT,
                env={
                    **os.environ,
                    "DALSEGNO_BOOTSTRAP_SERVERS": bootstrap,
                    "DALSEGNO_PREFIX": prefix,
                    "DALSEGNO_DEV": "true",
                    "DALSEGNO_MAC_KEYS": f"k1:{KEY_HEX}",
                    "DALSEGNO_HTTP_PORT": str(self.port),
                    **env,
                },
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def get(self, path: str) -> dict[str, object] | None:
        """JSON of a 200 answer, else None."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as got:
                return json.load(got)
        except (urllib.error.URLError, OSError):
            return None

    def wait_ready(self, partitions: int, limit_s: float = 120) -> float:
        """Seconds from its start until it is ready with so many partitions."""
        while True:
            found = self.get("/readyz")
            if found is not None and len(found["partitions"]) == partitions:  # type: ignore[arg-type]
                return time.perf_counter() - self.began
            if self.process.poll() is not None or time.perf_counter() - self.began > limit_s:
                raise RuntimeError("the engine did not become ready")
            time.sleep(0.02)

    def stop(self) -> None:
        """SIGTERM, and wait."""
        self.process.terminate()
        self.process.wait(15)


def broker() -> EmbeddedKafka:
    """A broker with temporary data."""
    return EmbeddedKafka()
