"""Mass failure on a real Kafka: all runs damaged at once; found once, ordered, ramped, and whole.

    python -m benchmarks.mass_recovery [--runs 100] [--away-s 4] [--frozen] [--every]

Runs of the crash workload are in their first steps when the only worker is killed with -9 and stays
away. With `--every` each of them is in its very first step then, so that all are damaged; else as
many as a worker has under way. With `--frozen` recovery is frozen before it comes back, looked at,
and released. What happened is read from the topics: transitions, and handoffs.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.crash_lab import body
from benchmarks.crash_lab.ours import Dalsegno
from confluent_kafka import Consumer, TopicPartition
from rich.console import Console
from rich.table import Table

from dalsegno.schemas import codec
from dalsegno.schemas.outputs import Handoff, Outcome, Transition
from dalsegno.schemas.topics import Topics
from dalsegno.streams.core.recovery.pacing import WIDTH_FIRST

SLEEP_S = 0.05
PARTITIONS = 4
CONCURRENCY = 200
LIMIT_S = 400
TOPICS = Topics()


@dataclass
class Seen:
    """What the topics say of one round."""

    found: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    again: list[Handoff] = field(default_factory=list)
    whole_ms: list[int] = field(default_factory=list)
    predicted_ms: list[int] = field(default_factory=list)

    def add(self, record: object) -> None:
        """One record of the transitions, or of a queue."""
        if isinstance(record, Handoff) and record.epoch > 1:
            self.again.append(record)
        elif isinstance(record, Transition):
            if record.cause == "StallSuspected" and record.outcome is Outcome.APPLIED:
                self.found[record.run_id, record.step, record.epoch] += 1
            if "whole after" in record.detail:
                words = record.detail.split()
                self.whole_ms.append(int(words[words.index("after") + 1]))
                self.predicted_ms.append(int(words[words.index("predicted") + 1]))

    def first_second(self, partitions: int) -> int:
        """The most further attempts that one partition can have given out in the first second."""
        if not self.again:
            return 0
        begun = min(handoff.dispatched_at_ms for handoff in self.again)
        early = sum(handoff.dispatched_at_ms - begun < 1_000 for handoff in self.again)
        return -(-early // partitions)


def read(bootstrap: str, *topics: str) -> Seen:
    """Everything that is in these topics."""
    seen = Seen()
    settings = {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False}
    consumer = Consumer(settings)
    for topic in topics:
        for number in range(PARTITIONS):
            partition = TopicPartition(topic, number)
            low, high = consumer.get_watermark_offsets(partition, 10)
            consumer.assign([TopicPartition(topic, number, low)])
            while low < high:
                message = consumer.poll(10)
                if message is None or message.error():
                    raise TimeoutError(f"{topic}[{number}] ends at {low}, not {high}")
                low = message.offset() + 1
                seen.add(codec.decode(message.value() or b""))
    consumer.close()
    return seen


def waiting(system: Dalsegno) -> int:
    """Runs that stand in a line, as the preview says."""
    return sum(row["waiting_runs"] for row in preview(system))


def preview(system: Dalsegno) -> list[dict[str, Any]]:
    """What is held, by partition."""
    found: list[dict[str, Any]] = json.loads(system.command("recovery", "preview", "--json"))
    return found


def planned_ms(system: Dalsegno) -> int:
    """What the plan of the first run in line predicts; 0 when none waits."""
    for row in preview(system):
        for run in row["runs"]:
            plan = json.loads(system.command("plan", run["run_id"], "--json"))
            assert plan["predicted_ms"] >= plan["bound_ms"], plan
            return int(plan["predicted_ms"])
    return 0


def until_held(system: Dalsegno, runs: int, limit_s: float) -> int:
    """Waits until as many runs are held, or until no more come; returns how many."""
    end, held, before = time.monotonic() + limit_s, 0, -1
    while held < runs and time.monotonic() < end and (held == 0 or held != before):
        time.sleep(1.0)
        before, held = held, waiting(system)
    return held


def damage(system: Dalsegno, folder: Path, runs: int, *, every: bool) -> int:
    """Kills the worker under the runs; returns how many attempts were in flight."""
    system.submit(runs)
    if every:
        end = time.monotonic() + LIMIT_S
        while (held := body.count_held(folder)) < runs:
            if time.monotonic() > end:
                raise TimeoutError(f"{held} of {runs} runs are in their first step")
            time.sleep(0.2)
        system.stop_worker()
        body.open_gate(folder)
        return held
    time.sleep(2.0)
    body.open_gate(folder)
    while body.count_done(folder) < runs // 4:
        time.sleep(0.002)
    system.stop_worker()
    lost = body.effects(folder)
    return lost.starts - lost.effects


def run_round(
    folder: Path, runs: int, away_s: float, *, frozen: bool, every: bool = False
) -> dict[str, object]:
    """One mass failure; its figures."""
    concurrency = max(runs, CONCURRENCY) if every else CONCURRENCY
    # So many that wait must not look at the gate all the time.
    os.environ["CRASH_GATE_S"] = str(0.02 * concurrency / CONCURRENCY)
    system = Dalsegno(partitions=PARTITIONS, concurrency=concurrency)
    body.prepare(folder)
    system.up(folder, SLEEP_S)
    try:
        lost = damage(system, folder, runs, every=every)
        held = predicted_ms = 0
        if frozen:
            system.command("recovery", "freeze", "--reason", "the pool is down")
        time.sleep(away_s)
        back = time.time()
        system.start_worker()
        if frozen:
            held = until_held(system, lost, 90)
            predicted_ms = planned_ms(system)
            system.command("recovery", "release")
        system.wait_results(runs, LIMIT_S)
        took = time.time() - back
        found = body.effects(folder)
        seen = read(system.kafka.bootstrap, TOPICS.transitions, TOPICS.queue("default"))
    finally:
        system.down()
    whole = seen.whole_ms or [0]
    return {
        "runs": runs,
        "attempts in flight at the kill": lost,
        "attempts found lost": len(seen.found),
        "found more than once": sum(count > 1 for count in seen.found.values()),
        "held while frozen": held,
        "plan of the first in line, ms": predicted_ms,
        "further attempts": len(seen.again),
        "most in the first second, per partition": seen.first_second(PARTITIONS),
        "worker back to all results, s": round(took, 2),
        "first loss to whole, mean, s": round(statistics.mean(whole) / 1e3, 2),
        "first loss to whole, worst, s": round(max(whole) / 1e3, 2),
        "steps lost": runs * body.STEPS - found.steps_done,
        "effects done twice": found.duplicates,
    }


def main(argv: list[str]) -> int:
    """Prints the figures; 1 when a run was lost, found twice, or not ramped."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mass_recovery")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--away-s", type=float, default=4.0)
    parser.add_argument("--frozen", action="store_true")
    parser.add_argument("--every", action="store_true")
    options = parser.parse_args(argv)
    folder = Path(tempfile.mkdtemp(prefix="dalsegno-mass-"))
    try:
        figures = run_round(
            folder, options.runs, options.away_s, frozen=options.frozen, every=options.every
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    table = Table("figure", "value", title="mass failure")
    for name, value in figures.items():
        table.add_row(name, str(value))
    Console().print(table)
    early = figures["most in the first second, per partition"]
    ramped = isinstance(early, int) and early <= 2 * WIDTH_FIRST
    return int(bool(figures["steps lost"] or figures["found more than once"]) or not ramped)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
