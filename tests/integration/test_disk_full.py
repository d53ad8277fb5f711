"""The disk of the local databases takes nothing: memory stays bounded, and nothing is lost."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
from tests.integration.engine.harness import EngineProcess, Lab, metric, wait_for
from tests.integration.tiers_lab import RUN_BYTES, Load, wrong_in_stores

pytestmark = pytest.mark.kafka

BUDGET = 200 * RUN_BYTES
BATCH = 40
FILE_BYTES = 6_000
"""Above what the engine logs, below what a database writes."""


def set_disk(engine: EngineProcess, file_bytes: int) -> None:
    """No file of the engine may be larger from now on."""
    _, hard = resource.prlimit(engine.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(engine.process.pid, resource.RLIMIT_FSIZE, (file_bytes, hard))


def test_an_engine_whose_disk_is_full_takes_no_more_than_fits_and_goes_on_when_there_is_room(
    lab: Lab, tmp_path: Path
) -> None:
    data, load = tmp_path / "data", Load(9, 2_000)
    engine = lab.engine(
        fold="core",
        DALSEGNO_DATA_DIR=str(data),
        DALSEGNO_MEMORY_BYTES=str(BUDGET),
        DALSEGNO_BATCH_RECORDS_MAX=str(BATCH),
        DALSEGNO_CHECKPOINT_EVENTS_MAX=str(BATCH),
        DALSEGNO_WARM_FLUSH_MS="100",
        DALSEGNO_LOG_LEVEL="error",
    )
    engine.wait_ready()
    set_disk(engine, FILE_BYTES)
    lab.send(load.round(3))
    wait_for("refused writes", lambda: metric(engine, "dalsegno_warm_write_failures_total") > 3)
    wait_for("the hard bound", lambda: metric(engine, "dalsegno_memory_full"))
    lab.send(load.round(2))
    # What it does not take it still sees.
    sent = 5 * 2_000
    wait_for("that events wait", lambda: metric(engine, "dalsegno_lag_records") > sent / 2)
    assert metric(engine, "dalsegno_runs_open") < 2_000
    held = metric(engine, "dalsegno_runs_memory_bytes")
    # Memory is measured at each checkpoint: what follows the last one comes on top.
    assert held <= 2 * BUDGET + lab.partitions * 4 * BATCH * RUN_BYTES
    assert engine.get(f"/runs/{load.names[0]}")[0] in (200, 404)
    set_disk(engine, resource.RLIM_INFINITY)
    engine.wait_caught_up()
    wait_for("memory that is free", lambda: not metric(engine, "dalsegno_memory_full"))
    assert metric(engine, "dalsegno_runs_open") == 2_000
    assert metric(engine, "dalsegno_warm_runs") > 1_000
    lab.send(load.round(6))
    engine.wait_caught_up()
    wait_for("nothing open", lambda: metric(engine, "dalsegno_runs_open") == 0)
    assert engine.term() == 0
    assert wrong_in_stores(lab, data) == []
