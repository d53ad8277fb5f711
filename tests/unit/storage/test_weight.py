"""What a run is taken to weigh is what Python allocates for it, within a half."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from itertools import islice

import msgspec
import pytest
from benchmarks.engine_lab.load import run_events

from dalsegno.schemas.events import RunEvent, RunStarted
from dalsegno.storage.memory import MemoryTable
from dalsegno.storage.warm import WarmStore
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.record import Record

RUNS = 500


def events(name: str, count: int, context_bytes: int) -> Iterator[RunEvent]:
    for event in islice(run_events(name), count):
        if context_bytes and isinstance(event, RunStarted):
            first = msgspec.msgpack.encode({"input": name.encode().ljust(context_bytes, b"x")})
            yield msgspec.structs.replace(event, context=first)
        else:
            yield event


@pytest.mark.parametrize(
    ("count", "context_bytes"), [(1, 0), (3, 0), (10, 0), (3, 4_000), (3, 60_000)]
)
def test_weights_are_what_is_allocated(count: int, context_bytes: int) -> None:
    partition = Partition.open(0, WarmStore(MemoryTable(), "x"))
    residence = partition.residence
    assert residence is not None
    gc.collect()
    tracemalloc.start()
    offset = 0
    for number in range(RUNS):
        for event in events(f"run-{number:06d}", count, context_bytes):
            partition.apply(Record(offset, 1_700_000_000_000, b"", b"", event))
            offset += 1
    partition.capture()
    gc.collect()
    allocated = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert residence.bytes_held == pytest.approx(allocated, rel=0.5)
