"""All tiers at once on real Kafka, RocksDB and S3: many more runs than fit, and everything dies.

`DALSEGNO_TEST_RUNS=20000 python -m pytest tests/integration/test_tiers.py` has 20,000 runs over a
memory budget for 1,000. `make test` has a tenth.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.integration.engine.harness import EngineProcess, Lab, metric, wait_for
from tests.integration.test_archive import archived_to, environment
from tests.integration.tiers_lab import (
    RUN_BYTES,
    Load,
    watched_run,
    wrong_in_stores,
)

from dalsegno.ops.archived import chain_of, open_archive, transitions_of
from dalsegno.ops.embedded.s3 import EmbeddedS3
from dalsegno.storage.archive.segment import Kind
from dalsegno.streams.engine.archiving import records_of
from dalsegno.streams.engine.settings import EngineSettings

pytestmark = pytest.mark.kafka

RUNS = int(os.environ.get("DALSEGNO_TEST_RUNS", "2000"))
BUDGET = RUNS // 20
PARTS = (3, 2, 2, 4)
"""Of the eleven events of a run, how many come in each round, all runs in another order."""
LIMIT_S = 60 + RUNS / 40


def killed_in(engine: EngineProcess, what: str, name: str, above: float) -> None:
    """Killed with -9 as soon as this metric says that it is at it; then it starts again."""
    wait_for(what, lambda: metric(engine, name) > above, LIMIT_S)
    engine.kill()
    engine.restart()
    engine.wait_ready()


def wrong_in_archive(lab: Lab, settings: EngineSettings) -> list[str]:
    """What S3 has of the events is what Kafka has, record by record, and so are transitions."""
    wrong: list[str] = []
    with open_archive(settings) as archive:
        for number in range(lab.partitions):
            chain = chain_of(archive, number)
            kept = {
                each.offset: (each.key, each.value)
                for manifest in chain
                for each in records_of(archive, manifest, Kind.EVENTS)
            }
            log = {
                message.offset(): (message.key(), message.value())
                for message in lab.read(lab.topics.events, number)
            }
            if kept != {offset: log[offset] for offset in range(len(kept))}:
                wrong.append(f"{number}: archived events are not those of Kafka")
            found = [each.value for each in transitions_of(archive, chain)]
            right = [message.value() for _, message in lab.ordered(lab.topics.transitions)[number]]
            if found != right[: len(found)] or len(found) < 0.9 * len(right):
                wrong.append(f"{number}: {len(found)} of {len(right)} transitions, or others")
    return wrong


def test_every_run_goes_on_with_its_context_though_engines_disks_and_s3_die(
    lab: Lab,
    s3: EmbeddedS3,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data, load, where = tmp_path / "data", Load(11, RUNS, watched_run), environment(s3)
    for name, value in {**lab.environment(), **where}.items():
        monkeypatch.setenv(name, value)
    settings = EngineSettings()
    engine = lab.engine(
        fold="served",
        DALSEGNO_DATA_DIR=str(data),
        DALSEGNO_MEMORY_BYTES=str(BUDGET * RUN_BYTES),
        DALSEGNO_MEMORY_BYTES_MAX=str(20 * BUDGET * RUN_BYTES),
        DALSEGNO_WARM_FLUSH_MS="500",
        DALSEGNO_ARCHIVE_SEGMENT_BYTES="262144",
        **{**where, "DALSEGNO_ARCHIVE_INTERVAL_MS": str(max(500, RUNS // 5))},
    )
    engine.wait_ready()
    lab.send(load.round(PARTS[0]))
    killed_in(engine, "runs that left memory", "dalsegno_warm_runs", RUNS / 2)
    killed_in(engine, "a segment", "dalsegno_archive_segments_total", 0)
    lab.send(load.round(PARTS[1]))
    s3.kill()
    killed_in(engine, "S3 that is away", "dalsegno_archive_failures_total", 0)
    lab.send(load.round(PARTS[2]))
    engine.wait_caught_up(LIMIT_S)
    engine.kill()
    for folder in data.glob("engine-0/partition-[01].*"):
        shutil.rmtree(folder)
    s3.start()
    engine.restart()
    engine.wait_ready()
    lab.send(load.round(PARTS[3]))
    engine.wait_caught_up(LIMIT_S)
    wait_for("nothing open", lambda: metric(engine, "dalsegno_runs_open") == 0, LIMIT_S)
    sent = 11 * RUNS
    wait_for(
        "an archive of all",
        lambda: sum(archived_to(settings, number) for number in range(lab.partitions)) >= sent,
        LIMIT_S,
        5.0,
    )
    budget_bytes = BUDGET * RUN_BYTES
    wait_for("what fits", lambda: metric(engine, "dalsegno_runs_memory_bytes") <= 2 * budget_bytes)
    assert engine.term(60) == 0
    assert wrong_in_stores(lab, data) == []
    assert wrong_in_archive(lab, settings) == []
    with capsys.disabled():
        print(f"\ntiers: {RUNS} runs over a budget for {BUDGET}, {sent} events")
