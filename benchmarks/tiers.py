"""Runs beside memory: how many fit in a GiB of memory and of disk, what leaving and coming cost.

One partition with the real core and RocksDB, no Kafka. Contexts begin with 400 random bytes. All
runs take their first step, in an order of their own; a budget holds a twentieth of them. Then all
take their next, in another order, as batches of 500 events: each batch's missing runs are read
together, as an engine does. Then the archive, with a real S3: `tiers_archive`.
"""

from __future__ import annotations

import argparse
import gc
import random
import tempfile
import time
import tracemalloc
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from benchmarks.tiers_archive import archive_figures
from benchmarks.tiers_runs import random_run
from rich.console import Console
from rich.table import Table

from dalsegno.schemas.events import RunEvent
from dalsegno.storage.rocksdb import RocksMemory, RocksTable
from dalsegno.storage.warm import Place, WarmStore
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.record import Record
from dalsegno.streams.core.residence import Residence

BATCH = 500
GIB = 1 << 30
AT_MS = 1_700_000_000_000


class Owner:
    """A partition and its store, in the order of an engine. Seconds by what was done."""

    def __init__(self, folder: Path, budget: int) -> None:
        self.table = RocksTable(folder, RocksMemory(64 << 20, 64 << 20))
        self.store = WarmStore(self.table, "bench/0")
        self.partition = Partition.open(0, self.store)
        self.budget = budget
        self.offset = self.left = self.read = 0
        self.seconds = dict.fromkeys(("apply", "capture", "put", "leave", "read"), 0.0)

    @property
    def residence(self) -> Residence:
        found = self.partition.residence
        assert found is not None
        return found

    def _timed(self, what: str, began: float) -> None:
        self.seconds[what] += time.perf_counter() - began

    def batch(self, events: list[RunEvent]) -> None:
        """Read ahead, apply, checkpoint, keep the budget."""
        residence, began = self.residence, time.perf_counter()
        missing = residence.missing([event.run_id for event in events], AT_MS)
        residence.offer(missing, self.store.load(missing))
        self.read += len(missing)
        self._timed("read", began)
        began = time.perf_counter()
        for event in events:
            self.partition.apply(Record(self.offset, AT_MS, event.run_id.encode(), b"", event))
            self.offset += 1
        self._timed("apply", began)
        began = time.perf_counter()
        parts = dict(self.partition.capture())
        self._timed("capture", began)
        began = time.perf_counter()
        self.store.put(parts, Place(self.offset, 0))
        self._timed("put", began)
        began = time.perf_counter()
        residence.stored(residence.captures, self.offset)
        self.left += residence.leave(residence.bytes_held - self.budget, 1 << 62)
        self._timed("leave", began)

    def all(self, events: Iterable[RunEvent]) -> None:
        """In batches."""
        source = iter(events)
        while batch := list(islice(source, BATCH)):
            self.batch(batch)


def memory_per_run(runs: int) -> int:
    """Bytes that Python allocates for a run that has taken two steps."""
    partition, rng = Partition(0), random.Random(0)
    gc.collect()
    tracemalloc.start()
    offset = 0
    for number in range(runs):
        for event in islice(random_run(f"m{number:06d}", rng), 5):
            partition.apply(Record(offset, AT_MS, b"", b"", event))
            offset += 1
    partition.capture()
    gc.collect()
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return held // runs


def main(argv: list[str]) -> int:
    """Runs the benchmark; 1 when runs did not leave or come back."""
    options = argparse.ArgumentParser(prog="benchmarks.tiers", description=__doc__)
    options.add_argument("--runs", type=int, default=20_000)
    options.add_argument("--archived", type=int, default=20_000, help="runs for S3's figures")
    chosen = options.parse_args(argv)
    runs, rng = chosen.runs, random.Random(1)
    per_run = memory_per_run(2_000)
    names = [f"run-{number:07d}" for number in range(runs)]
    sources = {name: random_run(name, rng) for name in names}
    with tempfile.TemporaryDirectory() as folder:
        owner = Owner(Path(folder), runs // 20 * per_run)
        owner.all(event for name in names for event in islice(sources[name], 3))
        first = dict(owner.seconds)
        left_first, read_first = owner.left, owner.read
        rng.shuffle(names)
        owner.all(event for name in names for event in islice(sources[name], 2))
        owner.store.flush()
        disk = owner.store.stat().disk_bytes
        late = owner.residence.late
        second = {what: owner.seconds[what] - first[what] for what in first}
        gone, back = owner.left - left_first, owner.read - read_first
        owner.store.close()
    table = Table("", "value", title=f"{runs:,} runs, memory for {runs // 20:,}")
    for what, value in (
        ("memory per run, bytes", f"{per_run:,}"),
        ("runs per GiB of memory", f"{GIB // per_run:,}"),
        ("disk per run, bytes", f"{disk // runs:,}"),
        ("runs per GiB of disk", f"{GIB * runs // max(disk, 1):,}"),
        ("spill µs per run: put in the database", f"{second['put'] / runs * 1e6:.1f}"),
        ("spill µs per run: leave memory", f"{second['leave'] / max(gone, 1) * 1e6:.1f}"),
        ("load µs per run, read together", f"{second['read'] / max(back, 1) * 1e6:.1f}"),
        ("apply µs per event, thawing included", f"{second['apply'] / (2 * runs) * 1e6:.1f}"),
        ("apply µs per event, first steps", f"{first['apply'] / (3 * runs) * 1e6:.1f}"),
        ("runs read late", f"{late:,}"),
        *archive_figures(chosen.archived).rows(),
    ):
        table.add_row(what, value)
    Console().print(table)
    return int(not (gone and back >= runs * 9 // 10))


if __name__ == "__main__":
    import sys

    sys.exit(main(sys.argv[1:]))
