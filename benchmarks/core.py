"""The fold: time and changelog bytes per event in short and long runs.

    python -m benchmarks.core [--events 60000] [--profile]

Runs of 10 and of 1,004 steps are real workflow graphs where the shared data is present. What is
promised: an event of the long run costs at most twice that of the short one, in time and in bytes.
Records are made beforehand; only `Partition.apply` and `capture` are timed, in CPU time of this
process.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import json
import pstats
import sys
import time
from pathlib import Path
from typing import NamedTuple

import msgspec
import zstandard
from rich.console import Console
from rich.table import Table

from dalsegno.schemas.events import RunEvent, RunStarted, StepCompleted, StepStarted
from dalsegno.schemas.plan import Plan, StepPlan
from dalsegno.streams.core.actions import Dispatch
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.record import Record

DAGS = Path(__file__).parents[2] / "shared" / "data" / "dags" / "dags.jsonl.zst"
START_MS = 1_700_000_000_000
# As many events as an engine applies between two checkpoints under load.
CAPTURE_EVERY = 200
RATIO_MAX = 2.0
EVENT_US_AIM = 15.0
_pack = msgspec.msgpack.encode


class Cost(NamedTuple):
    """What folding a log costs per event; bytes are those of keys and values."""

    events: int
    apply_us: float
    capture_us: float
    changelog_bytes: float
    records: float


class Shape(NamedTuple):
    """A plan and where it comes from."""

    name: str
    plan: Plan


def real_shapes() -> dict[int, Shape]:
    """Graphs by number of tasks; empty where the shared data is absent."""
    if not DAGS.exists():
        return {}
    data = zstandard.ZstdDecompressor().stream_reader(DAGS.read_bytes()).read()
    shapes: dict[int, Shape] = {}
    for line in data.splitlines():
        graph = json.loads(line)
        parents = {task["id"]: task["parents"] for task in graph["tasks"]}
        shapes[len(parents)] = Shape(graph["instance"], plan_of(parents))
    return shapes


def plan_of(parents: dict[str, list[str]]) -> Plan:
    """A step per task: it reads what its parents write and writes a field of its own."""
    return Plan(
        steps=tuple(
            StepPlan(
                name=name,
                needs=tuple(before),
                reads=tuple(f"out {parent}" for parent in before[:8]),
                writes=(f"out {name}",),
                queue="default",
                timeout_ms=60_000,
            )
            for name, before in parents.items()
        )
    )


def fork_join(width: int) -> Shape:
    """What stands in for a real graph: one step, `width` behind it, one that joins them."""
    middle = {f"middle {i}": ["first"] for i in range(width)}
    graph = {"first": [], **middle, "last": list(middle)}
    return Shape(f"fork and join, {width + 2} steps (no shared data)", plan_of(graph))


def log_of(plan: Plan, runs: int) -> list[Record]:
    """The records of `runs` runs that go right, as a partition's handoffs ask for them."""
    partition = Partition(0)
    log: list[Record] = []
    waiting: list[RunEvent] = [
        RunStarted(
            run_id=f"application-{i:06d}",
            flow="benchmark",
            flow_version=1,
            plan=plan,
            context=_pack({"applicant": {"name": "A. N. Other", "income": 41_000}}),
        )
        for i in range(runs)
    ]
    while waiting:
        later: list[RunEvent] = []
        for event in waiting:
            key = event.run_id.encode()
            # Slow enough that no start limit passes.
            at_ms = START_MS + len(log) // 100
            log.append(record := Record(len(log), at_ms, key, b"", event))
            for output in partition.apply(record):
                if isinstance(output.action, Dispatch):
                    handoff = output.action.handoff
                    later += reports(handoff.run_id, handoff.step, handoff.epoch, handoff.writes)
        waiting = later
    assert partition.open_runs == 0, "every run ends"
    return log


def reports(run_id: str, step: str, epoch: int, writes: tuple[str, ...]) -> list[RunEvent]:
    """A worker's two reports of an attempt that goes right."""
    value = {"score": 0.75, "reason": "within limits", "checked": True}
    who = {"run_id": run_id, "step": step, "epoch": epoch, "source": "worker-1"}
    ops = _pack([["set", [name], value] for name in writes])
    return [
        StepStarted(**who, worker="worker-1", incarnation=17, reply_to="worker-1"),
        StepCompleted(**who, ops=ops),
    ]


class Batch(NamedTuple):
    """What one batch of a fold took, and what its capture held."""

    apply_ns: int
    capture_ns: int
    size: int
    records: int


def fold(log: list[Record]) -> list[Batch]:
    """Folds the log once, with a capture after each batch."""
    partition = Partition(0)
    clock = time.process_time_ns
    batches: list[Batch] = []
    gc.collect()
    for first in range(0, len(log), CAPTURE_EVERY):
        batch = log[first : first + CAPTURE_EVERY]
        before = clock()
        for record in batch:
            partition.apply(record)
        between = clock()
        parts = partition.capture()
        after = clock()
        size = sum(len(key) + len(part or b"") for key, part in parts)
        batches.append(Batch(between - before, after - between, size, len(parts)))
    return batches


def best(log: list[Record], rounds: int) -> Cost:
    """Each batch at its quickest over some rounds: what disturbs only ever adds."""
    folds = [fold(log) for _ in range(rounds)]
    count = len(log)
    applied = sum(min(batch.apply_ns for batch in same) for same in zip(*folds, strict=True))
    captured = sum(min(batch.capture_ns for batch in same) for same in zip(*folds, strict=True))
    size = sum(batch.size for batch in folds[0])
    records = sum(batch.records for batch in folds[0])
    return Cost(count, applied / count / 1e3, captured / count / 1e3, size / count, records / count)


def main(argv: list[str]) -> int:
    """Prints the tables; 1 if a figure misses what is promised."""
    parser = argparse.ArgumentParser(prog="benchmarks.core", description=__doc__)
    parser.add_argument("--events", type=int, default=40_000, help="records per fold")
    parser.add_argument("--rounds", type=int, default=5, help="folds, of which the best counts")
    parser.add_argument("--profile", action="store_true", help="where the time goes, long run")
    options = parser.parse_args(argv)
    console = Console()
    shapes = real_shapes()
    pair = [shapes.get(10, fork_join(8)), shapes.get(1_004, fork_join(1_002))]
    table = Table(
        "run", "steps", "events", "apply µs", "capture µs", "bytes", "records",
        title=f"Per event; captured every {CAPTURE_EVERY} events",
    )  # fmt: skip
    costs: list[Cost] = []
    for shape in pair:
        steps = len(shape.plan.steps)
        log = log_of(shape.plan, max(1, options.events // (2 * steps + 1)))
        costs.append(cost := best(log, options.rounds))
        table.add_row(
            shape.name, f"{steps:,}", f"{cost.events:,}", f"{cost.apply_us:.1f}",
            f"{cost.capture_us:.1f}", f"{cost.changelog_bytes:.0f}", f"{cost.records:.2f}",
        )  # fmt: skip
        if options.profile and shape is pair[-1]:
            profile(log)
    console.print(table)
    short, long = costs
    time_ratio = (long.apply_us + long.capture_us) / (short.apply_us + short.capture_us)
    size_ratio = long.changelog_bytes / short.changelog_bytes
    return report(console, time_ratio, size_ratio, min(c.apply_us for c in costs))


def report(console: Console, time_ratio: float, size_ratio: float, quickest: float) -> int:
    """The promises and what was measured. An aim depends on the machine; a promise does not."""
    table = Table("figure", "measured", "wanted", "", title="Against what is promised")
    rows = [
        ("time per event, long run / short run", f"{time_ratio:.2f}", RATIO_MAX, time_ratio),
        ("changelog bytes per event, long / short", f"{size_ratio:.2f}", RATIO_MAX, size_ratio),
    ]
    for name, shown, wanted, value in rows:
        table.add_row(name, shown, f"≤ {wanted:g}", "ok" if value <= wanted else "[red]missed")
    mark = "ok" if quickest <= EVENT_US_AIM else "above the aim here"
    table.add_row("apply, µs per event", f"{quickest:.1f}", f"aim {EVENT_US_AIM:g}", mark)
    console.print(table)
    return int(any(value > wanted for _, _, wanted, value in rows))


def profile(log: list[Record]) -> None:
    """Prints the functions that take most of a fold's time."""
    profiler = cProfile.Profile()
    profiler.runcall(fold, log)
    pstats.Stats(profiler).sort_stats("tottime").print_stats(45)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
