"""What fails while something is being recovered, on a real Kafka."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from benchmarks.crash_lab import body
from benchmarks.crash_lab.ours import Dalsegno
from tests.integration.engine.harness import wait_for

RUNS = 250
AWAY_S = 5.0


@pytest.mark.kafka
@pytest.mark.timeout(240)
def test_a_broker_lost_in_the_middle_of_recovering_leaves_no_run_behind(tmp_path: Path) -> None:
    system = Dalsegno(partitions=4)
    body.prepare(tmp_path)
    system.up(tmp_path, 0.05)
    try:
        system.submit(RUNS)
        body.open_gate(tmp_path)
        wait_for("work is going on", lambda: body.count_done(tmp_path) >= RUNS)
        system.kill_worker()
        done = body.count_done(tmp_path)
        wait_for("recovery is going on", lambda: body.count_done(tmp_path) >= done + RUNS // 5)
        assert body.count_done(tmp_path) < RUNS * body.STEPS, "the broker is lost in the middle"
        system.kafka.kill()
        away_until = time.monotonic() + AWAY_S
        wait_for("the broker's time away", lambda: time.monotonic() >= away_until)
        system.kafka.start()
        system.wait_results(RUNS, 120)
        found = body.effects(tmp_path)
        assert found.steps_done == RUNS * body.STEPS
        unowned = wait_for("the reconciler", lambda: system.metrics("dalsegno_waits_unowned"))
        assert set(unowned) == {0.0}
    finally:
        system.down()
