"""Restore: changelog records/s in bulk, and the gap of an engine that is killed and restarted.

The first figure reads 200,000 records of 400 bytes back, two partitions at a time as an engine
does. The second kills an engine with -9 under a steady load and restarts it: seconds until it is
ready, the longest gap between two handoffs, and where they go. The third restores many parked runs:
in bulk into the local databases, and again with those in place, when only the tail since then has
to be read.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.engine import HandoffWatch
from benchmarks.engine_lab.lab import EngineRun, broker, create_topics
from benchmarks.engine_lab.load import EVENTS_PER_RUN, Loader, events
from benchmarks.engine_lab.parked import Changelog, Reading, read_back, records
from confluent_kafka import Producer
from rich.console import Console
from rich.table import Table

from dalsegno.ops.embedded import EmbeddedKafka
from dalsegno.schemas.codec import encode
from dalsegno.schemas.outputs import Claim
from dalsegno.streams.engine.metrics import EngineMetrics
from dalsegno.streams.engine.restore import CLAIM_KEY, RestoreJob, RestoreProgress, restore
from dalsegno.streams.engine.sinks import PartsSink
from dalsegno.streams.engine.warm_tier import WarmTier, look

RECORDS_AIM = 80_000
PARTITIONS = 4
VALUE_BYTES = 380


def claim(partition: int) -> bytes:
    """A claim with a known id."""
    return encode(
        Claim(
            partition=partition,
            owner="bench",
            url="",
            claim_id=f"bench-{partition}",
            rules_known=(1,),
            code_version="0",
            claimed_at_ms=0,
        )
    )


def bulk(kafka: EmbeddedKafka, records: int) -> tuple[float, float]:
    """Records/s and µs of CPU per record."""
    made = create_topics(kafka.bootstrap, f"bulk-{time.time_ns()}", PARTITIONS)
    topics = made.topics
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "transactional.id": topics.runs_changelog,
            "batch.size": 1_000_000,
            "linger.ms": 20,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    producer.init_transactions()
    each = records // PARTITIONS
    for partition in range(PARTITIONS):
        for first in range(0, each, 5_000):
            producer.begin_transaction()
            for i in range(first, min(first + 5_000, each)):
                key = b"r" + f"run-{partition}-{i:09d}".encode()
                value = os.urandom(VALUE_BYTES)
                producer.produce(topics.runs_changelog, value, key, partition=partition)
            producer.commit_transaction()
        producer.begin_transaction()
        producer.produce(topics.runs_changelog, claim(partition), CLAIM_KEY, partition=partition)
        producer.commit_transaction()

    def one(partition: int) -> int:
        job = RestoreJob(partition, f"bench-{partition}", topics.events, topics.runs_changelog)
        sink = PartsSink()
        restore(made, job, RestoreProgress(), sink)
        return len(sink.parts)

    began, cpu = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(made.restores_at_once) as pool:
        found = sum(pool.map(one, range(PARTITIONS)))
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    assert found == each * PARTITIONS
    return found / took, cpu / found * 1e6


def failover(kafka: EmbeddedKafka, folder: Path, static: str) -> dict[str, float]:
    """kill -9 of the only engine under 200 events/s, restarted at once."""
    prefix = f"failover-{time.time_ns()}"
    made = create_topics(kafka.bootstrap, prefix, PARTITIONS)
    # As it is operated: from the command line, whose log says when each step of a start was done.
    env = {"cli": "1", **({"DALSEGNO_NAME": static} if static else {})}
    log = folder / f"{prefix}.log"
    engine = EngineRun(kafka.bootstrap, prefix, log, **env)
    engine.wait_ready(PARTITIONS)
    watch = HandoffWatch(kafka.bootstrap, made.topics.queue("default"), PARTITIONS)
    watch.start()
    loader = Loader(kafka.bootstrap, made.topics.events, PARTITIONS)
    began, boot = time.time(), 0.0
    killed_at = 0.0
    for sent, event in enumerate(events(200 * 25 // EVENTS_PER_RUN)):
        time.sleep(max(0.0, began + sent / 200 - time.time()))
        loader.send(event)
        if not killed_at and time.time() - began > 5:
            engine.process.kill()
            engine.process.wait()
            killed_at = time.time()
            engine = EngineRun(kafka.bootstrap, prefix, log, **env)
        if killed_at and not boot:
            ready = engine.get("/readyz")
            if ready is not None and len(ready["partitions"]) == PARTITIONS:  # type: ignore[arg-type]
                boot = time.time() - killed_at
    loader.flush()
    time.sleep(1.0)
    watch.live = False
    watch.join()
    engine.stop()
    seen = sorted(watch.seen.values())
    gap, again = max((later - earlier, later) for earlier, later in pairwise(seen))
    return {"ready": boot, "gap": gap, **phases(log, killed_at, again)}


def phases(log: Path, killed_at: float, again: float) -> dict[str, float]:
    """Where a restart's time goes, seconds, from the engine's log: boot, join, and of the partition
    that was open last fence, restore and replay up to the first new handoff, at `again`.
    """
    said: dict[str, list[tuple[float, dict[str, Any]]]] = {}
    for line in log.read_text().splitlines():
        if line.startswith("{"):
            entry = json.loads(line)
            at = dt.datetime.fromisoformat(entry["timestamp"]).timestamp()
            if at >= killed_at:
                said.setdefault(entry["event"], []).append((at, entry))
    joining = said["joining the group"][0][0]
    assigned = next(at for at, entry in said["partitions assigned"] if entry["partitions"])
    opened, last = max(said["partition open"], key=lambda each: each[0])
    return {
        "boot": joining - killed_at,
        "join": assigned - joining,
        "fence": last["fence_s"],
        "restore": last["restore_s"],
        "replay": max(0.0, again - opened),
    }


def parked(kafka: EmbeddedKafka, folder: Path, runs: int, tail: int) -> list[tuple[str, Reading]]:
    """Bulk without local databases, and a restart with them after `tail` more records."""
    made = create_topics(kafka.bootstrap, f"parked-{time.time_ns()}", PARTITIONS)
    made = made.model_copy(update={"data_dir": str(folder / f"data-{time.time_ns()}")})
    log, each = Changelog(made), runs // PARTITIONS
    for partition in range(PARTITIONS):
        log.write(partition, records(partition, partition * each, each))
    tier = WarmTier(made, look(made), EngineMetrics())
    try:
        bulk_reading = read_back(log, PARTITIONS, tier)
        for partition in range(PARTITIONS):
            more = records(partition, partition * each, tail // PARTITIONS // 3)
            log.write(partition, more)
        found = [("bulk, no database", bulk_reading)]
        found.append((f"restart, tail {tail:,}", read_back(log, PARTITIONS, tier)))
        found.append(("restart, no tail", read_back(log, PARTITIONS, tier)))
    finally:
        tier.close()
    return found


def main(argv: list[str]) -> int:
    """Runs the benchmark; returns 1 when an aim is missed."""
    options = argparse.ArgumentParser(prog="benchmarks.restore", description=__doc__)
    options.add_argument("--records", type=int, default=200_000)
    options.add_argument("--no-failover", action="store_true")
    options.add_argument("--runs", type=int, default=1_000_000, help="parked runs; 0: none")
    options.add_argument("--tail", type=int, default=30_000)
    chosen = options.parse_args(argv)
    console = Console()
    with tempfile.TemporaryDirectory() as folder, broker() as kafka:
        rate, cpu_us = bulk(kafka, chosen.records)
        table = Table("records", "records/s", "CPU µs/record", title="Restore in bulk")
        table.add_row(f"{chosen.records:,}", f"{rate:,.0f}", f"{cpu_us:.1f}")
        console.print(table)
        if not chosen.no_failover:
            columns = ("ready", "gap", "boot", "join", "fence", "restore", "replay")
            table = Table("engine", *columns, title="kill -9 and restart, seconds")
            for name, static in (("dynamic member", ""), ("static member", "bench")):
                found = failover(kafka, Path(folder), static)
                table.add_row(name, *(f"{found[column]:.2f}" for column in columns))
            console.print(table)
        slow = False
        for runs in sorted({chosen.runs // 10, chosen.runs} - {0}):
            table = Table("", "seconds", "records read", "runs", title=f"{runs:,} parked runs")
            read = parked(kafka, Path(folder), runs, chosen.tail)
            for name, reading in read:
                row = (f"{reading.seconds:.2f}", f"{reading.records:,}", f"{reading.runs:,}")
                table.add_row(name, *row)
            console.print(table)
            slow |= any(reading.runs != runs for _, reading in read)
            slow |= read[1][1].seconds > read[0][1].seconds / 2 and runs > 100_000
    console.print(f"aim: {RECORDS_AIM:,} records/s in bulk")
    return int(rate < RECORDS_AIM or slow)


if __name__ == "__main__":
    import sys

    sys.exit(main(sys.argv[1:]))
