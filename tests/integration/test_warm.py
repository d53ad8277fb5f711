"""Many more runs than fit in memory, on real Kafka and RocksDB, over kill -9 and a lost disk."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from tests.integration.engine.harness import Lab, metric, wait_for
from tests.integration.tiers_lab import RUN_BYTES, Load, wrong_in_stores

pytestmark = pytest.mark.kafka

RUNS = 4_000
BUDGET = 200
PARTS = (3, 2, 2, 4)
"""Of the eleven events of a run, how many come in each round, all runs in another order."""


def test_runs_that_do_not_fit_in_memory_go_on_with_exactly_their_context(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, load = tmp_path / "data", Load(7, RUNS)
    engine = lab.engine(
        fold="core",
        DALSEGNO_DATA_DIR=str(data),
        DALSEGNO_MEMORY_BYTES=str(BUDGET * RUN_BYTES),
        DALSEGNO_WARM_FLUSH_MS="500",
    )
    engine.wait_ready()
    lab.send(load.round(PARTS[0]))
    wait_for("runs that left memory", lambda: metric(engine, "dalsegno_warm_runs") > RUNS / 2)
    engine.kill()  # while it spills
    engine.restart()
    engine.wait_ready()
    lab.send(load.round(PARTS[1]))
    engine.kill()
    for folder in data.glob("engine-0/partition-[01].*"):
        shutil.rmtree(folder)
    engine.restart()
    engine.wait_ready()
    lab.send(load.round(PARTS[2]))
    engine.wait_caught_up()
    wait_for(
        "what fits",
        lambda: metric(engine, "dalsegno_runs_memory_bytes") <= 2 * BUDGET * RUN_BYTES,
    )
    late, read = (metric(engine, f"dalsegno_warm_{name}_total") for name in ("late", "missing"))
    assert read > RUNS / 2
    assert late < read / 20
    for name in load.rng.sample(load.names, 50):
        assert engine.get(f"/runs/{name}")[0] == 200
    lab.send(load.round(PARTS[3]))
    engine.wait_caught_up()
    assert engine.term() == 0
    assert wrong_in_stores(lab, data) == []
    with capsys.disabled():
        print(f"\nwarm: {RUNS} runs, {read:.0f} read ahead, {late:.0f} late")


def damage(folder: Path, rng: random.Random) -> None:
    """Flip bits, cut, or take away: the files of one database."""
    for path in sorted(folder.glob("*.sst")):
        data = bytearray(path.read_bytes())
        for _ in range(200):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
    for path in sorted(folder.glob("MANIFEST-*")):
        if rng.random() < 0.5:
            path.write_bytes(path.read_bytes()[:20])


def test_a_damaged_database_is_thrown_away_and_no_run_is_wrong(lab: Lab, tmp_path: Path) -> None:
    data, load = tmp_path / "data", Load(8, 600)
    engine = lab.engine(
        fold="core",
        DALSEGNO_DATA_DIR=str(data),
        DALSEGNO_MEMORY_BYTES=str(65_536),
        DALSEGNO_WARM_FLUSH_MS="100",
    )
    engine.wait_ready()
    lab.send(load.round(5))
    engine.wait_caught_up()
    wait_for("runs that left memory", lambda: metric(engine, "dalsegno_warm_runs") > 300)
    assert engine.term() == 0
    for number, folder in enumerate(sorted(data.glob("engine-0/partition-*"))):
        damage(folder, random.Random(number))
    engine.restart()
    engine.wait_ready()
    lab.send(load.round(6))
    engine.wait_caught_up()
    wait_for("nothing open", lambda: metric(engine, "dalsegno_runs_open") == 0)
    assert metric(engine, "dalsegno_warm_wiped_total") > 0
    assert engine.term() == 0
    assert wrong_in_stores(lab, data) == []
