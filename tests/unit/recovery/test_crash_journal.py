"""A worker with its engine in itself, killed under the crash workload: the journal's."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.crash_lab import body, journal
from benchmarks.crash_lab.in_worker import InWorker, Worker, WorkerGone
from benchmarks.crash_lab.journal_worker import replay

RUNS = 3


@pytest.fixture
def system(tmp_path: Path) -> Iterator[InWorker]:
    body.prepare(tmp_path)
    system = journal.install()()
    system.up(tmp_path, 0.0)
    yield system
    system.down()


def test_accepted_runs_are_done_after_a_kill(system: InWorker, tmp_path: Path) -> None:
    system.submit(RUNS)
    system.kill_worker()
    body.open_gate(tmp_path)
    system.wait_results(RUNS, 30)
    assert body.effects(tmp_path) == body.Effects(15, 15, 15)


def test_recorded_steps_are_not_done_again(system: InWorker, tmp_path: Path) -> None:
    body.open_gate(tmp_path)
    system.submit(RUNS)
    system.wait_results(RUNS, 30)
    system.kill_worker()
    system.wait_results(RUNS, 30)
    system.run_once(1)
    assert body.effects(tmp_path) == body.Effects(20, 20, 20)
    assert system.cpu_s()["worker"] > 0
    assert system.memory_mb()["worker"] > 0


def test_what_never_came_up_goes_down() -> None:
    journal.install()().down()


def test_a_line_that_a_kill_cut_short_is_cut_off(tmp_path: Path) -> None:
    file = tmp_path / "runs"
    assert replay(file) == {}
    whole = b'["r0", -1, 0]\n["r0", 0, 0]\n["r1", -1, 0]\n'
    file.write_bytes(whole + b'["r1", 0')
    assert replay(file) == {"r0": {0: 0}, "r1": {}}
    assert file.read_bytes() == whole


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_answer_that_cannot_be_read_fails_what_waits(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.stdin.readline(); print('{', flush=True)"]
    worker = Worker(command, {}, tmp_path / "log")
    with pytest.raises(WorkerGone):
        worker.ask("results", ["r0"], 30)
    worker.end()


def test_a_request_to_a_worker_that_is_gone_fails(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.stdin.readline()"]
    worker = Worker(command, {}, tmp_path / "log")
    with pytest.raises(WorkerGone):
        worker.ask("results", ["r0"], 30)
    worker.end()
    with pytest.raises(WorkerGone):
        worker.ask("results", ["r0"], 30)
