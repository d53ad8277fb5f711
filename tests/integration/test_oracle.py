"""The oracle: 300 runs and some 30,000 events while engines and the broker die, freeze and come
back; then Kafka alone is read, and everything must fit.

The seed is printed; DALSEGNO_ORACLE_SEED repeats the load and the order of the faults, and
DALSEGNO_ORACLE_RUNS scales it. What the operating system schedules in between is its own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.engine.harness import Lab, wait_for
from tests.integration.oracle import scripts
from tests.integration.oracle.faults import Faults
from tests.integration.oracle.load import Load, checksum
from tests.oracle.oracle import Oracle
from tests.oracle.progress import wait_quiet

from dalsegno.ops.embedded import EmbeddedKafka
from dalsegno.schemas import values
from dalsegno.schemas.codec import decode
from dalsegno.schemas.control import ControlEvent, Policy, PolicySet
from dalsegno.schemas.outputs import RunState

pytestmark = pytest.mark.kafka

RUNS = int(os.environ.get("DALSEGNO_ORACLE_RUNS", "300"))
SEED = int(os.environ.get("DALSEGNO_ORACLE_SEED", "0")) or time.time_ns() % 10**6
# Short, so that what is never started or never finished is given out again while the test runs.
POLICY = Policy(start_limit_ms=8_000, start_margin_ms=500, redispatch_initial_ms=200,
                redispatch_max_ms=2_000)  # fmt: skip


@pytest.fixture
def own_lab(tmp_path: Path) -> Iterator[tuple[Lab, EmbeddedKafka]]:
    """A broker of our own, which may be killed."""
    with EmbeddedKafka() as broker:
        lab = Lab(broker.bootstrap, "oracle", tmp_path)
        lab.create_topics()
        yield lab, broker
        lab.stop()


def run_load(load: Load, faults: Faults, kinds: tuple[str, ...] | None = None) -> None:
    """All of the load and all of the faults, until every run has ended."""
    for partition in range(4):
        load.sign(PolicySet(partition=partition, number=1, policy=POLICY))
    faults.whole()
    load.start()
    try:
        faults.run() if kinds is None else faults.run(kinds)
        wait_for("every run ended", load.done, 120)
    finally:
        load.stop()


def wrong_in_log(lab: Lab, load: Load) -> Iterator[str]:
    """What was acknowledged is in the log where the broker said; the rest is the engines' own."""
    if load.failed:
        yield f"{len(load.failed)} appends failed: {load.failed[0]}"
    if len(load.acked) != sum(load.sent.values()):
        yield f"{sum(load.sent.values())} sent, {len(load.acked)} acknowledged"
    missing = dict(load.acked)
    for partition in range(lab.partitions):
        for message in lab.read(lab.topics.events, partition):
            place = partition, message.offset() or 0
            want = missing.pop(place, None)
            if want is None:
                event = decode(message.value() or b"")
                if not isinstance(event, ControlEvent):
                    yield f"{place}: {type(event).__name__} that nobody sent"
            elif want != checksum(message):
                yield f"{place}: not what was acknowledged"
    if missing:
        yield f"P1: {len(missing)} acknowledged and not in the log: {sorted(missing)[:5]}"


def wrong_ends(oracle: Oracle, load: Load) -> Iterator[str]:
    """Every run is final, in the state and with the context that its script leads to."""
    views = {
        run_id: fold.run(run_id)
        for fold in oracle.folds.values()
        for run_id in list(fold.run_ids())
    }
    for run_id in load.runs:
        view = views.get(run_id)
        cancelled = scripts.is_cancelled(run_id)
        want = RunState.CANCELLED if cancelled else RunState.SUCCEEDED
        if view is None or view.state is not want:
            yield f"P6: {run_id}: {view and view.state}, not {want}"
        elif not cancelled and values.unpack(view.context) != scripts.context_of(run_id):
            yield f"{run_id}: ended with {values.unpack(view.context)!r}"


def judged(lab: Lab, load: Load) -> tuple[list[str], Oracle]:
    """All that is wrong, by reading Kafka."""
    oracle = Oracle(lab, rubbish=load.sent["rubbish"])
    problems = list(oracle.problems())
    problems += wrong_in_log(lab, load)
    problems += wrong_ends(oracle, load)
    return problems, oracle


def test_engines_and_broker_fail_and_everything_is_accounted_for(
    own_lab: tuple[Lab, EmbeddedKafka], capsys: pytest.CaptureFixture[str]
) -> None:
    lab, broker = own_lab
    load = Load(lab, SEED, RUNS)
    begun = time.monotonic()
    faults = Faults(lab, broker, load, SEED)
    try:
        run_load(load, faults)
        wait_quiet(lab)
        for engine in faults.engines:
            assert engine.term() == 0
        ran_s = time.monotonic() - begun
        problems, oracle = judged(lab, load)
    finally:
        with capsys.disabled():
            print(f"\noracle: seed {SEED}, {RUNS} runs, sent {dict(load.sent)}")
            print("\n".join(faults.log))
    with capsys.disabled():
        print(f"whole again after (s): {faults.took}")
        print(f"{oracle.events} events, outcomes {dict(oracle.outcomes)}")
        print(f"{oracle.outputs} outputs, {oracle.repeats} repeats; load {ran_s:.0f} s, "
              f"all {time.monotonic() - begun:.0f} s")  # fmt: skip
    assert problems == []
