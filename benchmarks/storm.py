"""A dependency returns under 1,000 and 10,000 runs: fault points against retries and a breaker.

The world is a simulation (`storm_lab`): 200 requests a second at best, from 20 % of it over 30 s
after 60 s of outage, slower as a whole when too many come at once. Fault points are the product's
own code: the actor's fold and the partitions' side of it, with a log between them.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import Final

from benchmarks.storm_lab.dependency import TIMEOUT_S, ideal_s
from benchmarks.storm_lab.ours import HOP_S, World
from benchmarks.storm_lab.rivals import BreakerAlone, EachForItself
from rich.console import Console
from rich.table import Table

OUTAGE_S: Final = 60.0
HORIZON_S: Final = 240.0
RATIO_MAX: Final = {1_000: 1.3, 10_000: 1.15}
WASTE_AFTER_MAX: Final = 0.01
PEAK_MAX: Final = 1.5
# The longest pause, and what a probe that hangs takes to fail.
FOUND_S_MAX: Final = 6.0 + TIMEOUT_S + 10 * HOP_S
_CASES: Final = {
    "fault points": World,
    "full jitter alone": EachForItself,
    "breaker alone": BreakerAlone,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run of the world. Seconds count from the return; shares are per run."""

    runs: int
    done: int
    recovered_s: float
    wasted: float
    wasted_after: float
    peak: float
    found_s: float | None
    probes_at_once: int
    took_s: float

    @property
    def ratio(self) -> float:
        """Against the ideal; infinite when not all recovered."""
        return self.recovered_s / ideal_s(self.runs) if self.done == self.runs else float("inf")

    def misses(self) -> list[str]:
        """What falls short of what is promised for fault points."""
        found = self.found_s if self.found_s is not None else float("inf")
        limit = RATIO_MAX.get(self.runs, 1.3)
        checks = {
            f"all recovered in {self.ratio:.2f} × ideal, over {limit}": self.ratio <= limit,
            f"waste {self.wasted_after:.2%}": self.wasted_after <= WASTE_AFTER_MAX,
            f"peak {self.peak:.2f} × capacity": self.peak <= PEAK_MAX,
            f"return found after {found:.1f} s": found <= FOUND_S_MAX,
            f"{self.probes_at_once} probes at once": self.probes_at_once <= 1,
        }
        return [text for text, good in checks.items() if not good]


def measure(case: str, runs: int, seed: int, outage_s: float = OUTAGE_S) -> Outcome:
    """Runs one case to its end or the horizon."""
    began = time.perf_counter()
    world = _CASES[case](runs, outage_s, seed)
    world.clock.run(outage_s + HORIZON_S, lambda: world.done >= world.runs)
    dependency = world.dependency
    first = dependency.first_success_s
    return Outcome(
        runs=runs,
        done=world.done,
        recovered_s=world.clock.now_s - outage_s,
        wasted=(world.attempts - world.done) / runs,
        wasted_after=dependency.failed_after / runs,
        peak=dependency.peak,
        found_s=None if first is None else first - outage_s,
        probes_at_once=getattr(world, "probes_at_once", 0),
        took_s=time.perf_counter() - began,
    )


def main(argv: list[str]) -> int:
    """Prints the table; 1 when a promise is missed."""
    parser = argparse.ArgumentParser(prog="storm", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rivals", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args(argv)
    table = Table("case", "runs", "seed", "recovered, s", "× ideal", "wasted", "after the return",
                  "peak / capacity", "found, s", title="an outage of 60 s")  # fmt: skip
    missed: list[str] = []
    for case in _CASES if options.rivals else ["fault points"]:
        for runs in RATIO_MAX:
            for seed in range(1, options.seeds + 1 if case == "fault points" else 2):
                got = measure(case, runs, seed)
                table.add_row(case, f"{runs:,}", str(seed), *_shown(got))
                if case == "fault points":
                    missed += [f"{runs} runs, seed {seed}: {text}" for text in got.misses()]
    console = Console()
    console.print(table)
    for line in missed:
        console.print(f"[red]missed: {line}")
    return int(bool(missed))


def _shown(got: Outcome) -> list[str]:
    whole = got.done == got.runs
    return [
        f"{got.recovered_s:.1f}" if whole else f"{got.done:,} runs",
        f"{got.ratio:.3f}" if whole else "never",
        f"{got.wasted:.3f}",
        f"{got.wasted_after:.4f}",
        f"{got.peak:.2f}",
        "never" if got.found_s is None else f"{got.found_s:.1f}",
    ]
