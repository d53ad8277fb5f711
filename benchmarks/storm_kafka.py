"""A real HTTP service fails under 10,000 runs and returns, on a real Kafka; it counts arrivals.

    python -m benchmarks.storm_kafka [--runs 10000] [--mode refuse|hang|busy|half_open ...]

Each mode is an outage of its own, one after the other in one system. Some runs find out about it;
all others wait for the fault point when the service comes back. It serves 100 requests a second.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.crash_lab.ours import Dalsegno
from benchmarks.outage_lab.called_flow import TIMEOUT_S, URL, flow
from benchmarks.outage_lab.service import Mode, Service, peak_per_second
from benchmarks.storm import PEAK_MAX, RATIO_MAX, WASTE_AFTER_MAX
from rich.console import Console
from rich.table import Table

from dalsegno.schemas.outputs import RunState

PARTITIONS = 4
SPAN_S, AT_ONCE = 0.05, 5
# More than the service serves at once, and less than would hide that they are paced.
CONCURRENCY = 200
FIRST = 100
LIMIT_S = 900.0
MODES = (Mode.REFUSE, Mode.HANG, Mode.BUSY, Mode.HALF_OPEN)
# The longest pause, a probe that hangs, and what lies between the logs.
FOUND_S_MAX = 6.0 + TIMEOUT_S + 1.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """One outage. Seconds count from the return."""

    mode: Mode
    runs: int
    recovered_s: float
    found_s: float
    peak: float
    tried_during: int
    wasted_after: float
    done_twice: int
    not_recovered: int

    @property
    def ratio(self) -> float:
        """Against what the service needs to serve them all."""
        return self.recovered_s / (self.runs * SPAN_S / AT_ONCE)

    def misses(self) -> list[str]:
        """What falls short of what is promised."""
        limit = RATIO_MAX.get(self.runs, 1.3)
        checks = {
            f"all recovered in {self.ratio:.2f} × ideal, over {limit}": self.ratio <= limit,
            f"waste {self.wasted_after:.2%}": self.wasted_after <= WASTE_AFTER_MAX,
            f"peak {self.peak:.2f} × capacity": self.peak <= PEAK_MAX,
            f"return found after {self.found_s:.1f} s": self.found_s <= FOUND_S_MAX,
            f"{self.done_twice} done twice": not self.done_twice,
            f"{self.not_recovered} not recovered": not self.not_recovered,
        }
        return [text for text, good in checks.items() if not good]


def stands(system: Dalsegno) -> tuple[str, int]:
    """Phase of the fault point, and how many steps wait for it, as its actor saved it last."""
    found: list[dict[str, Any]] = json.loads(system.command("faults", "list", "--json"))
    if not found:
        return "healthy", 0
    return found[0]["phase"], sum(side["waiting"] for side in found[0]["sides"].values())


def until(what: str, looks_right: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
    """Polls. Raises `TimeoutError`."""
    end = time.monotonic() + limit_s
    while not looks_right():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.5)


def outage(system: Dalsegno, service: Service, mode: Mode, runs: int) -> Outcome:
    """The service fails in one way, returns, and serves all that waits."""
    names = [f"{mode}-{number}" for number in range(runs)]
    client = system.client
    began_s = time.monotonic()
    service.mode = mode
    client.start_many(flow, {name: {} for name in names[:FIRST]})
    until("the breaker opens", lambda: stands(system)[0] == "open")
    client.start_many(flow, {name: {} for name in names[FIRST:]})
    until("all wait", lambda: stands(system)[1] >= runs - 2 * FIRST)
    before, back_s = len(service.done), time.monotonic()
    service.mode = Mode.PASS
    end = time.monotonic() + LIMIT_S
    while not all(name in service.done for name in names) and time.monotonic() < end:
        time.sleep(0.1)
    recovered_s = time.monotonic() - back_s
    results = [client.wait(name, "120s") for name in names]
    after = sum(at >= back_s for at in service.tries)
    return Outcome(
        mode=mode,
        runs=runs,
        recovered_s=recovered_s,
        found_s=min(at for at in service.arrivals if at >= back_s) - back_s,
        peak=peak_per_second(service.arrivals, back_s) / service.capacity_per_s,
        tried_during=sum(began_s <= at < back_s for at in service.tries),
        wasted_after=(after - (len(service.done) - before) - service.repeats) / runs,
        done_twice=sum(count > 1 for count in service.done.values()),
        not_recovered=sum(result.state is not RunState.SUCCEEDED for result in results),
    )


def measure(folder: Path, modes: list[Mode], runs: int) -> list[Outcome]:
    """All modes in one system."""
    service = Service(SPAN_S, AT_ONCE)
    os.environ[URL] = service.url
    works_on = "benchmarks.outage_lab.called_flow:flow"
    system = Dalsegno(partitions=PARTITIONS, works_on=works_on, concurrency=CONCURRENCY)
    system.up(folder, 0.0)
    try:
        return [outage(system, service, mode, runs) for mode in modes]
    finally:
        system.down()
        service.close()


def main(argv: list[str]) -> int:
    """Prints the table; 1 when a promise is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.storm_kafka")
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--mode", action="append", type=Mode, choices=MODES, metavar="MODE")
    options = parser.parse_args(argv)
    folder = Path(tempfile.mkdtemp(prefix="dalsegno-storm-"))
    try:
        found = measure(folder, options.mode or list(MODES), options.runs)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    table = Table("outage", "runs", "recovered, s", "× ideal", "peak / capacity", "found, s",
                  "tries during it", "wasted after it", title="a real service, 100/s")  # fmt: skip
    for got in found:
        table.add_row(
            got.mode, f"{got.runs:,}", f"{got.recovered_s:.1f}", f"{got.ratio:.3f}",
            f"{got.peak:.2f}", f"{got.found_s:.1f}", str(got.tried_during),
            f"{got.wasted_after:.4f}",
        )  # fmt: skip
    console = Console()
    console.print(table)
    missed = [f"{got.mode}: {text}" for got in found for text in got.misses()]
    for line in missed:
        console.print(f"[red]missed: {line}")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
