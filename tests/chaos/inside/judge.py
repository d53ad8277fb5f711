"""`python -m tests.chaos.inside.judge SEED ACKS [LIMIT_S]`: a `Verdict` as JSON.

Waits until every acknowledged run has ended and the engines are at rest, then judges by
the topics and by the services' ledgers alone. The whole log of the stack is judged, so what earlier
faults left is judged again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median

from confluent_kafka import Message
from examples.risk_control import facts
from tests.integration.engine.harness import Lab
from tests.oracle.oracle import Oracle
from tests.oracle.progress import FINAL, Ends, wait_quiet

from dalsegno.schemas.events import RunStarted
from dalsegno.schemas.outputs import Outcome
from dalsegno.streams.engine.logread import LogReader
from dalsegno.streams.engine.settings import EngineSettings
from dalsegno.streams.engine.topics_admin import TopicAdmin

LEDGERS = Path("/chaos")
ENDS_LIMIT_S = 240.0
TRIES = 5


class ComposeLab(Lab):
    """The topics of the stack, by its engines' settings; one consumer for all reads."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._reader = LogReader(self.settings)

    def make_settings(self, **more: object) -> EngineSettings:
        return EngineSettings()

    def read(self, topic: str, partition: int) -> list[Message]:
        return list(self._reader.read(topic, partition))

    def end(self, topic: str, partition: int) -> int:
        return self._reader.bounds(topic, partition)[1]


@dataclass
class Verdict:
    """What was found. `broken`: one line for each thing that a promise rules out. Times in seconds.

    `repeats`: records of output topics that were sent again with the same bytes.
    """

    broken: list[str] = field(default_factory=list)
    runs: int = 0
    events: int = 0
    outputs: int = 0
    repeats: int = 0
    effects: int = 0
    rework_rate: float = 0.0
    ack_gap_s: float = 0.0
    output_gap_s: float = 0.0
    run_p50_s: float = 0.0
    run_max_s: float = 0.0


def open_lab() -> ComposeLab:
    settings = EngineSettings()
    partitions = TopicAdmin(settings).facts()[settings.topics.events].partitions
    return ComposeLab(settings.bootstrap_servers, settings.prefix, Path("/tmp"), partitions)


def judge(seed: int, acks: Path, limit_s: float = ENDS_LIMIT_S) -> Verdict:
    lab, verdict = open_lab(), Verdict()
    acked = dict(line.split() for line in acks.read_text().splitlines())
    verdict.runs = len(acked)
    verdict.ack_gap_s = longest_gap(map(float, acked.values()))
    ends = Ends(lab)
    late = ends.wait(acked, limit_s)
    ends.close()
    if late:
        verdict.broken.append(f"P6: not ended after {limit_s:g} s: {sorted(late)}")
        return verdict
    judge_log(lab, verdict, set(acked))
    judge_effects(lab, verdict, seed, sum(run_id.startswith(f"app-{seed}-") for run_id in acked))
    return verdict


def judge_log(lab: Lab, verdict: Verdict, acked: set[str]) -> None:
    """An actor may still have an order to give when all runs have ended: the log that is judged is
    one to which nothing was added meanwhile.
    """
    for _ in range(TRIES):
        wait_quiet(lab)
        before = ends_of(lab)
        try:
            oracle: Oracle | None = Oracle(lab)
            broken = list(oracle.problems())
        except AssertionError as error:  # from the reader of outputs: a gap, or other bytes
            oracle, broken = None, [f"outputs: {error}"]
        if ends_of(lab) == before:
            break
    else:
        verdict.broken.append(f"never at rest: {TRIES} times something was added to the events")
        return
    verdict.broken += broken
    if oracle is not None:
        measure(lab, verdict, acked, oracle)


def measure(lab: Lab, verdict: Verdict, acked: set[str], oracle: Oracle) -> None:
    verdict.events, verdict.outputs = oracle.events, oracle.outputs
    verdict.repeats = oracle.repeats
    lost = acked - oracle.started()
    if lost:
        verdict.broken.append(f"P1: acknowledged and not in the log: {sorted(lost)}")
    began: dict[str, int] = {}
    took: list[float] = []
    appended = [
        message.timestamp()[1] / 1000
        for kept in oracle.found[lab.topics.transitions].values()
        for _, message in kept
        if (message.key() or b"").decode() in acked
    ]
    for _, change in oracle.changes():
        if change.run_id not in acked or change.outcome is not Outcome.APPLIED:
            continue
        if change.cause == RunStarted.__name__:
            began[change.run_id] = change.at_ms
        if change.run_state_after in FINAL and change.run_id in began:
            took.append((change.at_ms - began.pop(change.run_id)) / 1000)
    verdict.output_gap_s = longest_gap(sorted(appended))
    verdict.run_p50_s, verdict.run_max_s = median(took), max(took)


def judge_effects(lab: Lab, verdict: Verdict, seed: int, applications: int) -> None:
    """All ledgers of the demo, and the decisions of the seed's applications."""
    found = facts.gather(lab.bootstrap, lab.topics, LEDGERS, seed, applications)
    verdict.effects, verdict.rework_rate = found.effects, found.rework_rate
    if found.applied_twice or found.contradictory:
        verdict.broken.append(
            f"effects: {found.applied_twice} done twice, {found.contradictory} contradictory scores"
        )
    if not found.right:
        verdict.broken.append(
            f"runs: {found.finished_right} of {found.runs} right, {found.finished_wrong} wrong, "
            f"{found.lost} without an end"
        )


def ends_of(lab: Lab) -> list[int]:
    return [lab.end(lab.topics.events, partition) for partition in range(lab.partitions)]


def longest_gap(times: Iterable[float]) -> float:
    return max((b - a for a, b in pairwise(times)), default=0.0)


if __name__ == "__main__":
    found = judge(int(sys.argv[1]), Path(sys.argv[2]), *map(float, sys.argv[3:]))
    print(json.dumps(asdict(found)))
