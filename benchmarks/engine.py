"""Engine: events/s at backlog, append → handoff latency, CPU per event of engine and broker.

Real events, codec and `apply`; each event writes a transition, nearly every second one a handoff.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.engine_lab.lab import EngineRun, broker, cpu_s, create_topics
from benchmarks.engine_lab.load import EVENTS_PER_RUN, Loader, events
from confluent_kafka import Consumer, TopicPartition
from rich.console import Console
from rich.table import Table

from dalsegno.ops.embedded import EmbeddedKafka
from dalsegno.streams.engine.logread import LogReader
from dalsegno.streams.engine.restore import sequence_in

BACKLOG_AIM = 15_000
P50_AIM_MS, P99_AIM_MS = 10.0, 40.0


def ends(reader: LogReader, topic: str, partitions: int) -> int:
    """Records in a topic."""
    return sum(reader.bounds(topic, partition)[1] for partition in range(partitions))


def backlog(kafka: EmbeddedKafka, partitions: int, count: int, folder: Path) -> dict[str, float]:
    """A log that waits for the engine: from the first output to the last."""
    prefix = f"backlog{partitions}-{time.time_ns()}"
    made = create_topics(kafka.bootstrap, prefix, partitions)
    loader = Loader(kafka.bootstrap, made.topics.events, partitions)
    total = 0
    for event in events(count // EVENTS_PER_RUN):
        loader.send(event)
        total += 1
    loader.flush()
    reader = LogReader(made)
    engine = EngineRun(kafka.bootstrap, prefix, folder / f"{prefix}.log")
    while (first := ends(reader, made.topics.transitions, partitions)) == 0:
        time.sleep(0.005)
    began, cpu, broker_cpu = time.perf_counter(), cpu_s(engine.process.pid), cpu_s(kafka.pid)
    while ends(reader, made.topics.transitions, partitions) < total:
        time.sleep(0.02)
    took, events_done = time.perf_counter() - began, total - first
    found = {
        "events/s": events_done / took,
        "engine µs/event": (cpu_s(engine.process.pid) - cpu) / events_done * 1e6,
        "broker µs/event": (cpu_s(kafka.pid) - broker_cpu) / events_done * 1e6,
        "handoffs": ends(reader, made.topics.queue("default"), partitions),
    }
    reader.close()
    engine.stop()
    return found


class HandoffWatch(threading.Thread):
    """Notes when each handoff was seen, by partition and source offset."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(daemon=True)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "watch",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 100,
            }
        )
        self._consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
        self.seen: dict[tuple[int, int], float] = {}
        self.live = True

    def run(self) -> None:
        """Poll until told to stop."""
        while self.live:
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                now = time.time()
                sequence = sequence_in(message)
                if sequence is not None:
                    self.seen[message.partition(), sequence.offset] = now
        self._consumer.close()


def latency(
    kafka: EmbeddedKafka, partitions: int, rate: int, seconds: float, folder: Path
) -> dict[str, float]:
    """At a steady rate: from an event's append time to its handoff at a reader, ms."""
    prefix = f"light{rate}-{time.time_ns()}"
    made = create_topics(kafka.bootstrap, prefix, partitions)
    engine = EngineRun(kafka.bootstrap, prefix, folder / f"{prefix}.log")
    engine.wait_ready(partitions)
    watch = HandoffWatch(kafka.bootstrap, made.topics.queue("default"), partitions)
    watch.start()
    loader = Loader(kafka.bootstrap, made.topics.events, partitions)
    cpu, broker_cpu = cpu_s(engine.process.pid), cpu_s(kafka.pid)
    began = time.time()
    sent = 0
    for event in events(int(rate * seconds / EVENTS_PER_RUN)):
        time.sleep(max(0.0, began + sent / rate - time.time()))
        loader.send(event)
        sent += 1
    loader.flush()
    time.sleep(1.0)
    cpu, broker_cpu = cpu_s(engine.process.pid) - cpu, cpu_s(kafka.pid) - broker_cpu
    watch.live = False
    watch.join()
    engine.stop()
    appended: dict[tuple[int, int], float] = {}
    reader = LogReader(made)
    for partition in range(partitions):
        for message in reader.read(made.topics.events, partition):
            appended[partition, message.offset() or 0] = message.timestamp()[1] / 1_000
    reader.close()
    # The append time has whole milliseconds: half of one is added on average.
    waits = sorted(at - appended[place] for place, at in watch.seen.items() if place in appended)
    waits = waits[len(waits) // 10 :] if len(waits) > 100 else waits
    return {
        "handoffs": len(waits),
        "p50 ms": waits[len(waits) // 2] * 1e3,
        "p99 ms": waits[int(len(waits) * 0.99)] * 1e3,
        "engine µs/event": cpu / sent * 1e6,
        "broker µs/event": broker_cpu / sent * 1e6,
    }


def main(argv: list[str]) -> int:
    """Runs the benchmark; returns 1 when an aim is missed."""
    options = argparse.ArgumentParser(prog="benchmarks.engine", description=__doc__)
    options.add_argument("--events", type=int, default=110_000)
    options.add_argument("--partitions", type=int, nargs="*", default=[1, 4, 8])
    options.add_argument("--rates", type=int, nargs="*", default=[50, 200, 1000])
    options.add_argument("--seconds", type=float, default=15)
    chosen = options.parse_args(argv)
    console = Console()
    missed = False
    with tempfile.TemporaryDirectory() as folder, broker() as kafka:
        table = Table("partitions", "events/s", "engine µs", "broker µs", title="Backlog")
        best = 0.0
        for partitions in chosen.partitions:
            found = backlog(kafka, partitions, chosen.events, Path(folder))
            best = max(best, found["events/s"])
            table.add_row(
                str(partitions),
                f"{found['events/s']:,.0f}",
                f"{found['engine µs/event']:.1f}",
                f"{found['broker µs/event']:.1f}",
            )
        if chosen.partitions:
            console.print(table)
            missed |= best < BACKLOG_AIM
        table = Table("events/s", "p50 ms", "p99 ms", "engine µs", "broker µs", title="Light load")
        for rate in chosen.rates:
            found = latency(kafka, 4, rate, chosen.seconds, Path(folder))
            table.add_row(
                str(rate),
                f"{found['p50 ms']:.1f}",
                f"{found['p99 ms']:.1f}",
                f"{found['engine µs/event']:.0f}",
                f"{found['broker µs/event']:.0f}",
            )
            if rate == 200:
                missed |= found["p50 ms"] > P50_AIM_MS or found["p99 ms"] > P99_AIM_MS
        if chosen.rates:
            console.print(table)
    console.print(f"aims: {BACKLOG_AIM:,} events/s; at 200/s p50 {P50_AIM_MS}, p99 {P99_AIM_MS} ms")
    return int(missed)


if __name__ == "__main__":
    import sys

    sys.exit(main(sys.argv[1:]))
