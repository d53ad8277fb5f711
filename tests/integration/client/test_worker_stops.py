"""A worker that is told to stop while its broker is away ends in time, and says what is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.integration.client.lab import Lab, wait_for

from dalsegno.ops.embedded import EmbeddedKafka

pytestmark = pytest.mark.kafka

ROOT = Path(__file__).parents[3]
STOP_S_MAX = 2.0 + 10.0
"""The worker's bound, and what `docs/operations.md` gives to all that comes behind it."""


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    """One for this module: it is frozen and killed."""
    with EmbeddedKafka() as made:
        yield made


class Stopped:
    """A worker as a process, and its broker."""

    def __init__(self, broker: EmbeddedKafka, prefix: str, folder: Path) -> None:
        self.broker = broker
        self.lab = Lab(broker.bootstrap, prefix)
        self._ledger = folder / "ledger"
        self._log = folder / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """It starts."""
        command = [sys.executable, "-m", "tests.integration.client.worker_process"]
        arguments = [self.broker.bootstrap, self.lab.prefix, str(self._ledger), "0", "60000"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen([*command, *arguments], cwd=ROOT, stderr=log)

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def lines(self) -> list[str]:
        return self._ledger.read_text().splitlines() if self._ledger.exists() else []

    def finish(self) -> None:
        """Its step goes through."""
        self._ledger.with_name("gate").touch()

    def take(self) -> None:
        """It works on a step."""
        self.begin()
        self.lab.hand(self.lab.make("r", "gated"))
        wait_for("begun", lambda: "begun r 1" in self.lines())

    def away(self, *, killed: bool) -> None:
        if killed:
            self.broker.kill()
        else:
            os.kill(self.broker.pid, signal.SIGSTOP)

    def term(self) -> tuple[int, str]:
        """Told to stop: its exit code, in time, and what it said."""
        began_s = time.monotonic()
        self.process.terminate()
        code = self.process.wait(90)
        said = self.said()
        assert time.monotonic() - began_s < STOP_S_MAX, said[-3_000:]
        return code, said

    def back(self) -> None:
        """The broker answers again."""
        if self.broker.alive:
            os.kill(self.broker.pid, signal.SIGCONT)
        else:
            self.broker.start()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        with ExitStack() as ends:
            ends.callback(self.lab.close)
            ends.callback(self.kill)
            self.back()


@pytest.fixture
def stopped(broker: EmbeddedKafka, fresh_prefix: str, tmp_path: Path) -> Iterator[Stopped]:
    made = Stopped(broker, fresh_prefix, tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("killed", [False, True], ids=["frozen", "killed"])
def test_reports_that_no_broker_takes_are_told_of_and_the_exit_code_is_none_of_success(
    stopped: Stopped, killed: bool
) -> None:
    stopped.take()
    stopped.away(killed=killed)
    stopped.finish()
    wait_for("the body's end", lambda: "done r 1" in stopped.lines())
    code, said = stopped.term()
    assert code != 0, said[-3_000:]
    assert "stopped with 1 reports that no broker has acknowledged" in said


def test_a_worker_that_has_nothing_to_report_stops_well_without_its_broker(
    stopped: Stopped,
) -> None:
    stopped.take()
    stopped.finish()
    stopped.lab.wait_kinds("r", "StepStarted", "StepCompleted")
    stopped.away(killed=False)
    code, said = stopped.term()
    assert code == 0, said[-3_000:]


def test_a_report_that_the_broker_takes_before_the_end_is_not_lost(stopped: Stopped) -> None:
    stopped.take()
    stopped.away(killed=False)
    stopped.finish()
    wait_for("the body's end", lambda: "done r 1" in stopped.lines())
    stopped.process.terminate()
    wait_for("the last wait", lambda: "last wait" in stopped.lines())
    stopped.back()
    assert stopped.term()[0] == 0
    stopped.lab.wait_kinds("r", "StepStarted", "StepCompleted")


def test_a_worker_that_still_waits_for_its_broker_stops_well(stopped: Stopped) -> None:
    stopped.away(killed=True)
    stopped.begin()
    wait_for("a try", lambda: "cannot start yet" in stopped.said())
    code, said = stopped.term()
    assert code == 0, said[-3_000:]
