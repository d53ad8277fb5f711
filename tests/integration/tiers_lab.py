"""Many runs over engines with little memory, and what their databases have of them in the end."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.engine_lab.load import STEPS, run_events
from tests.integration.engine.harness import Lab

from dalsegno.client import Flow
from dalsegno.schemas.events import RunEvent, RunStarted, StepCompleted, StepStarted
from dalsegno.schemas.values import pack
from dalsegno.storage.folder import EngineFolder
from dalsegno.storage.rocksdb import RocksMemory, RocksTable
from dalsegno.storage.warm import WarmStore
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.engine.verify import Verifier
from dalsegno.streams.engine.warm_tier import look

RUN_BYTES = 2_500
"""What one of these runs takes in memory."""


def watched_run(run_id: str) -> Iterator[RunEvent]:
    """As many events as of `run_events`, and no step that must be reported soon: services drive the
    run by themselves, and may take their time.
    """
    flow = Flow("watched", ttl="20h")
    for number in range(STEPS):
        flow.observed(name=f"s{number}", reads=["input"], writes=[f"out{number}"], timeout="10h")
    context = pack({"input": {"amount": 1200, "name": "x" * 40}})
    yield RunStarted(
        run_id=run_id, flow=flow.name, flow_version=1, plan=flow.plan(), context=context
    )
    for number in range(STEPS):
        step = {"run_id": run_id, "step": f"s{number}", "epoch": 0, "attempt": 1}
        yield StepStarted(**step)
        value = {"value": number, "of": run_id}
        yield StepCompleted(**step, ops=pack([["set", [f"out{number}"], value]]))


class Load:
    """All runs go on in rounds, so that each is idle for long between two of its events."""

    def __init__(
        self, seed: int, runs: int, events_of: Callable[[str], Iterator[RunEvent]] = run_events
    ) -> None:
        self.rng = random.Random(seed)
        self.names = [f"warm-{number:05d}" for number in range(runs)]
        self.runs = {name: events_of(name) for name in self.names}

    def round(self, events: int) -> Iterator[RunEvent]:
        self.rng.shuffle(self.names)
        for name in self.names:
            for _ in range(events):
                yield next(self.runs[name])


def wrong_in_stores(lab: Lab, data: Path) -> list[str]:
    """What the databases have is the fold of the log, byte for byte, run by run."""
    identity = look(lab.settings).identity
    folder, memory = EngineFolder.take(data), RocksMemory(4 << 20, 4 << 20)
    verifier, wrong = Verifier(lab.settings, Partition, lab.partitions), []
    try:
        for number in range(lab.partitions):
            store = WarmStore(RocksTable(folder.partition(number), memory), f"{identity}/{number}")
            stored = Partition.open(number, store)
            folded, _ = verifier.fold(number, stored.position)
            report = verifier.verify(number)
            if not report.right or stored.position != report.position:
                wrong.append(f"{number}: {stored.position} {report.position} {report.differences}")
            if stored.parts() != folded.parts():
                wrong.append(f"{number}: the database is not the fold")
            stored_runs = {name: stored.run(name) for name in stored.run_ids()}
            if stored_runs != {name: folded.run(name) for name in folded.run_ids()}:
                wrong.append(f"{number}: runs differ")
            store.close()
    finally:
        folder.release()
    return wrong
