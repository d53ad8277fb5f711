"""Memory of a live run: bytes that one of five steps takes while it is in its third.

    python -m benchmarks.memory [--runs 2000]

What Python allocates for a partition between its first record and its last, over the runs that are
open then; the state that is captured is dropped, as an engine does once it is in a checkpoint. What
is promised: at most 3 KB a run.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tracemalloc

import msgspec
from benchmarks.core import CAPTURE_EVERY, START_MS, log_of, plan_of
from rich.console import Console
from rich.table import Table

from dalsegno.schemas.control import ClockTick
from dalsegno.schemas.events import StepCompleted, StepStarted
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.record import Record

BYTES_MAX = 3_072


def memory_per_run(runs: int) -> float:
    """Bytes per live run of 5 steps, in the middle of its third step."""
    names = ("identity", "data validation", "bureau", "income", "decision")
    parents = {name: list(names[i - 1 : i]) if i else [] for i, name in enumerate(names)}
    log = [r for r in log_of(plan_of(parents), runs) if not _late(r.event, names)]
    partition = Partition(0)
    tick = Record(0, START_MS, b"", b"", ClockTick(partition=0, number=1))
    partition.apply(tick)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number, record in enumerate(log, 1):
        partition.apply(msgspec.structs.replace(record, offset=number))
        if number % CAPTURE_EVERY == 0:
            partition.capture()
            partition.drain_in_flight()
    partition.capture()
    partition.drain_in_flight()
    gc.collect()
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert partition.open_runs == runs
    return used / runs


def _late(event: object, names: tuple[str, ...]) -> bool:
    if isinstance(event, StepCompleted):
        return event.step in names[2:]
    return isinstance(event, StepStarted) and event.step in names[3:]


def main(argv: list[str]) -> int:
    """Prints the table; 1 if a run takes more than is promised."""
    parser = argparse.ArgumentParser(prog="benchmarks.memory", description=__doc__)
    parser.add_argument("--runs", type=int, default=2_000)
    options = parser.parse_args(argv)
    table = Table("live runs of 5 steps", "bytes each", "wanted", "")
    worst = 0.0
    for runs in (options.runs // 10, options.runs):
        used = memory_per_run(runs)
        worst = max(worst, used)
        mark = "ok" if used <= BYTES_MAX else "[red]missed"
        table.add_row(f"{runs:,}", f"{used:,.0f}", f"≤ {BYTES_MAX:,}", mark)
    Console().print(table)
    return int(worst > BYTES_MAX)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
