"""What a system under the crash workload has to be able to do."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol


class System(Protocol):
    """Ours or a peer. Every method blocks until it is done."""

    name: str

    def up(self, folder: Path, sleep_s: float) -> None:
        """Start everything; steps put their files into `folder`."""

    def submit(self, runs: int) -> None:
        """Submit runs r0 to r<runs - 1>."""

    def wait_results(self, runs: int, limit_s: float) -> None:
        """Wait for the result of each. Raises `TimeoutError`."""

    def kill_worker(self) -> None:
        """kill -9 of the worker, and start it again at once."""

    def kill_server(self, *, restart: bool) -> None:
        """kill -9 of the engine or server; started again at once, or left to its standby."""

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds used so far, by part."""

    def memory_mb(self) -> dict[str, float]:
        """Memory in use now, by part."""

    def run_once(self, number: int) -> None:
        """Submit one run and wait for its result."""

    def down(self) -> None:
        """End everything."""


def cpu_seconds(pid: int, *, with_ended: bool = False) -> float:
    """User and system CPU time of a process so far; 0 when it is gone. `with_ended`: and of its
    children that have ended.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except FileNotFoundError:
        return 0.0
    return sum(map(int, fields[11 : 15 if with_ended else 13])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int) -> float:
    """Memory of a process now, its share of what it shares with others (PSS); 0 when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1e3
