"""Workers killed, frozen and busy, on a real Kafka: what the monitors say of them."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.engine.harness import Lab, WorkerProcess, wait_for
from tests.integration.liveness.watched_flow import flow

from dalsegno.client import Client
from dalsegno.schemas.codec import decode
from dalsegno.schemas.control import StallSuspected, Verdict
from dalsegno.schemas.outputs import RunState

pytestmark = pytest.mark.kafka

SILENT_MS_MIN = 10_000


class Watched:
    """An engine with its monitors, a client, workers, and the verdicts in the log."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.engine = lab.engine(fold="served")
        self.engine.wait_ready()
        self.client = Client(bootstrap_servers=lab.bootstrap, prefix=lab.prefix)
        self.workers: list[WorkerProcess] = []

    def worker(self, name: str) -> WorkerProcess:
        module = "tests.integration.liveness.watched_flow"
        worker = WorkerProcess(self.lab, name, module)
        self.workers.append(worker)
        return worker

    def start(self, count: int) -> dict[str, Path]:
        gates = {f"run-{n}": self.lab.folder / f"gate-{n}" for n in range(count)}
        for run_id, gate in gates.items():
            self.client.start(flow, {"gate": str(gate)}, run_id=run_id)
        return gates

    def wait_started(self, gates: dict[str, Path], epoch: int) -> None:
        def all_started() -> bool:
            for worker in self.workers:
                assert worker.process.poll() is None, worker.tail()
            return all(g.with_suffix(f".started-{epoch}").exists() for g in gates.values())

        wait_for(f"bodies of epoch {epoch}", all_started, 60)

    def verdicts(self) -> list[StallSuspected]:
        found = []
        for partition in range(self.lab.partitions):
            for message in self.lab.read(self.lab.topics.events, partition):
                record = decode(message.value())
                if isinstance(record, StallSuspected):
                    found.append(record)
        return found

    def finish(self, gates: dict[str, Path]) -> list[int]:
        for gate in gates.values():
            gate.touch()
        results = [self.client.wait(run_id, "60s") for run_id in gates]
        assert {result.state for result in results} == {RunState.SUCCEEDED}
        return [int(result.context["epoch"]) for result in results]  # type: ignore[arg-type]

    def close(self) -> None:
        for worker in self.workers:
            worker.end()
        self.client.close()


@pytest.fixture
def watched(lab: Lab) -> Iterator[Watched]:
    made = Watched(lab)
    yield made
    made.close()


def test_a_worker_that_was_killed_and_restarted_is_replaced_at_once(watched: Watched) -> None:
    worker = watched.worker("w")
    gates = watched.start(6)
    watched.wait_started(gates, 1)
    worker.kill()
    worker.restart()
    watched.wait_started(gates, 2)
    verdicts = watched.verdicts()
    assert {(v.run_id, v.epoch, v.verdict) for v in verdicts} == {
        (run_id, 1, Verdict.REPLACED) for run_id in gates
    }
    # Far below the threshold for silence: nothing waited for the heartbeats to stay away.
    assert max(v.elapsed_ms for v in verdicts) < SILENT_MS_MIN
    assert watched.finish(gates) == [2] * 6


def test_a_busy_step_is_left_alone_and_a_frozen_worker_is_silent(watched: Watched) -> None:
    worker = watched.worker("w")
    gates = watched.start(4)
    watched.wait_started(gates, 1)
    # Longer than the threshold: the bodies block their threads, the heartbeats have their own.
    busy_until_s = time.monotonic() + 1.3 * SILENT_MS_MIN / 1_000
    wait_for("a busy while", lambda: time.monotonic() > busy_until_s)
    assert watched.verdicts() == []
    worker.signal(signal.SIGSTOP)
    other = watched.worker("other")
    wait_for("verdicts on all", lambda: len(watched.verdicts()) >= len(gates), 60)
    verdicts = watched.verdicts()
    assert {(v.run_id, v.epoch, v.verdict) for v in verdicts} == {
        (run_id, 1, Verdict.SILENT) for run_id in gates
    }
    assert min(v.elapsed_ms for v in verdicts) > SILENT_MS_MIN
    watched.wait_started(gates, 2)
    worker.signal(signal.SIGCONT)
    assert watched.finish(gates) == [2] * 4
    assert other.process.poll() is None
