"""Crash workload: 200 runs of 5 steps of 20 ms; clean, and with a worker or an engine killed.

    python -m benchmarks.crash_recovery [--rounds N] [--peers NAME ...] [--no-peers]
                                        [--only CASE ...]

Cases: clean, cpu (20,000 steps), latency (empty steps), worker, engine, standby. Ours and the peers
that install here run one after the other on the same machine with the same step body; read ratios,
not absolutes. Peers and cases that are left out are told with the reason.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from benchmarks.crash_lab import body
from benchmarks.crash_lab.ours import Dalsegno
from benchmarks.crash_lab.peers import CPU_RUNS, PEERS, Installed, install
from benchmarks.crash_lab.system import System
from rich.console import Console
from rich.table import Table

RUNS = 200
SETTLE_S = 2.0
_WIDTH = 320
RESULTS_S_MAX = 240.0  # some worker looks for its server once a minute only
Figures = dict[str, float]
Work = Callable[[System, Path], Figures]
Name = TypeVar("Name")


def _round(system: System, sleep_s: float, work: Work) -> Figures:
    folder = Path(tempfile.mkdtemp(prefix="dalsegno-crash-"))
    with ExitStack() as ends:
        ends.callback(shutil.rmtree, folder, ignore_errors=True)
        body.prepare(folder)
        ends.callback(system.down)
        system.up(folder, sleep_s)
        return work(system, folder)


def _submitted(system: System, runs: int) -> None:
    """Submit, and give the system the time to bring the first steps to the gate."""
    system.submit(runs)
    time.sleep(SETTLE_S)


def clean(system: System, folder: Path, runs: int = RUNS) -> Figures:
    """Gate to all results."""
    _submitted(system, runs)
    before = system.cpu_s()
    begun = body.open_gate(folder)
    system.wait_results(runs, 300)
    took = time.time() - begun
    used = {part: value - before[part] for part, value in system.cpu_s().items()}
    found = body.effects(folder)
    steps = runs * body.STEPS
    memory = system.memory_mb()
    return {
        "steps/s": steps / took,
        "CPU ms/step": sum(used.values()) / steps * 1e3,
        **{f"CPU ms/step {part}": value / steps * 1e3 for part, value in used.items()},
        "duplicates": found.duplicates,
        "lost": steps - found.steps_done,
        **{f"memory MB {part}": value for part, value in memory.items()},
    }


def cpu(system: System, folder: Path, runs: int = CPU_RUNS) -> Figures:
    """CPU per step over 20,000 steps, where a column says no other number."""
    return clean(system, folder, runs)


def wait_half(folder: Path, limit_s: float) -> None:
    """Until half of the effects are there. Raises `TimeoutError`."""
    half, end = RUNS * body.STEPS // 2, time.monotonic() + limit_s
    while (done := body.count_done(folder)) < half:
        if time.monotonic() > end:
            raise TimeoutError(f"{done} effects of {half} after {limit_s:.0f} s")
        time.sleep(0.002)


def _crash(system: System, folder: Path, kill: Callable[[], None]) -> Figures:
    _submitted(system, RUNS)
    body.open_gate(folder)
    wait_half(folder, RESULTS_S_MAX)
    killed = time.time()
    kill()
    at_kill = body.effects(folder)
    system.wait_results(RUNS, RESULTS_S_MAX)
    found = body.effects(folder)
    return {
        "kill → all results, s": time.time() - killed,
        "in flight at the kill": at_kill.starts - at_kill.effects,
        "duplicates": found.duplicates,
        "lost": RUNS * body.STEPS - found.steps_done,
    }


def worker(system: System, folder: Path) -> Figures:
    """kill -9 of the worker at half of the effects; it is started again at once."""
    return _crash(system, folder, system.kill_worker)


def engine(system: System, folder: Path) -> Figures:
    """kill -9 of the engine (or server); it is started again at once."""
    return _crash(system, folder, lambda: system.kill_server(restart=True))


def standby(system: System, folder: Path) -> Figures:
    """kill -9 of an engine that stays away; another takes its partitions over."""
    return _crash(system, folder, lambda: system.kill_server(restart=False))


def latency(system: System, folder: Path) -> Figures:
    """A whole run of 5 empty steps, one at a time and eight at a time."""
    body.open_gate(folder)
    for number in range(30):
        system.run_once(number)

    def timed(number: int) -> float:
        begun = time.perf_counter()
        system.run_once(number)
        return (time.perf_counter() - begun) * 1e3

    alone = [timed(1_000 + number) for number in range(200)]
    lanes: list[float] = []

    def lane(first: int) -> None:
        lanes.extend(timed(first + number) for number in range(50))

    threads = [threading.Thread(target=lane, args=(10_000 * (n + 1),)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    def at(values: list[float], share: float) -> float:
        return sorted(values)[int(len(values) * share)]

    return {
        "alone p50, ms": at(alone, 0.5),
        "alone p99, ms": at(alone, 0.99),
        "eight at a time p50, ms": at(lanes, 0.5),
        "eight at a time p99, ms": at(lanes, 0.99),
    }


class Case(NamedTuple):
    """What is done with a system, how long its steps take, and how many engines ours has."""

    work: Work
    sleep_s: float
    engines: int = 1


CASES = {
    "clean": Case(clean, 0.02),
    "cpu": Case(cpu, 0.02),
    "latency": Case(latency, 0.0),
    "worker": Case(worker, 0.02),
    "engine": Case(engine, 0.02),
    "standby": Case(standby, 0.02, engines=2),
}


def columns(
    case: str, installed: dict[str, Installed], tell: Callable[[str], None]
) -> Iterator[tuple[str, Callable[[], System], Work]]:
    """Who takes part in a case: name, what makes it, what is done with it. Who is left out is told
    with the reason.
    """
    work = CASES[case].work
    yield Dalsegno.name, partial(Dalsegno, engines=CASES[case].engines), work
    for name, (peer, make) in installed.items():
        if case in peer.left_out:
            tell(f"{case} without {name}: {peer.left_out[case]}")
        elif case == "cpu" and peer.cpu_runs != CPU_RUNS:
            yield (
                f"{name}, {peer.cpu_runs * body.STEPS} steps",
                make,
                partial(cpu, runs=peer.cpu_runs),
            )
        else:
            yield name, make, work


def _terminated(*_: object) -> None:
    sys.exit(128 + signal.SIGTERM)


def rotated(names: Sequence[Name], by: int) -> list[Name]:
    """Each comes first, and each last, in its turn."""
    start = by % len(names)
    return [*names[start:], *names[:start]]


def main(argv: list[str]) -> int:
    signal.signal(signal.SIGTERM, _terminated)  # what is up goes down on the way out
    parser = argparse.ArgumentParser(prog="benchmarks.crash_recovery", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", nargs="*", choices=list(PEERS), default=list(PEERS))
    parser.add_argument("--no-peers", dest="peers", action="store_const", const=[])
    parser.add_argument("--only", nargs="*", choices=list(CASES), default=list(CASES))
    options = parser.parse_args(argv)
    # A file or pipe has no width of its own: nothing is cut off there.
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    failed = False

    def tell(text: str) -> None:
        console.print(text, markup=False)

    installed = dict(install(options.peers, tell))
    for case in options.only:
        taking_part = list(columns(case, installed, tell))
        found: dict[str, list[Figures]] = {name: [] for name, *_ in taking_part}
        for number in range(options.rounds):
            for name, make, work in rotated(taking_part, number):
                try:
                    found[name].append(_round(make(), CASES[case].sleep_s, work))
                except Exception as error:  # the others' rounds are worth keeping
                    tell(f"{case}: a round of {name} failed: {error!r}")
                    failed = True
        _print(console, case, found, options.rounds)
    return int(failed)


def cell(values: list[float]) -> str:
    """The median, and between what it lies."""
    if not values:
        return ""
    median = f"{statistics.median(values):.2f}"
    return median if len(values) == 1 else f"{median} ({min(values):.2f} to {max(values):.2f})"


def heading(name: str, counted: int, rounds: int) -> str:
    """Says how many rounds counted when some failed."""
    return name if counted == rounds else f"{name}, {counted} of {rounds} rounds"


def _print(console: Console, case: str, found: dict[str, list[Figures]], rounds: int) -> None:
    heads = [heading(name, len(figures), rounds) for name, figures in found.items()]
    first = "figure" if rounds == 1 else "figure: median (min to max)"
    table = Table(first, *heads, title=f"{case}: {CASES[case].work.__doc__}")
    names = dict.fromkeys(name for figures in found.values() for r in figures for name in r)
    kinds = list(dict.fromkeys(name.split()[0] for name in names))
    for name in sorted(names, key=lambda name: kinds.index(name.split()[0])):
        cells = [cell([r[name] for r in figures if name in r]) for figures in found.values()]
        table.add_row(name, *cells)
    console.print(table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
