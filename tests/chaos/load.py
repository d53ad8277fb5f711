"""Load while something breaks, and the verdict afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from tests.chaos.inside.judge import Verdict
from tests.chaos.inside.outage import Outage
from tests.chaos.stack import ROOT, Stack, container
from tests.integration.engine.harness import wait_for

PER_S: Final = float(os.environ.get("CHAOS_APPLICATIONS_PER_S", "2"))
SEED_FIRST: Final = 100
ACK_LIMIT_S: Final = 120.0
JUDGE_LIMIT_S: Final = 240.0


@dataclass
class Row:
    """One line of a closing table: a fault, how long it lasted, and what was found. Seconds."""

    fault: str
    lasted_s: float = 0.0
    back_s: float = 0.0
    judged_s: float = 0.0
    verdict: Verdict | None = None
    outage: Outage | None = None

    @property
    def outcome(self) -> str:
        if self.verdict is None:
            return "not judged"
        return "broken" if self.verdict.broken else "held"


class Load:
    """One load of its own seed: while it is open, applications start in the driver."""

    def __init__(self, stack: Stack, seed: int, row: Row) -> None:
        self._stack, self._seed, self.row = stack, seed, row
        self.acks = f"/chaos/acks-{seed}"

    @contextmanager
    def running(self, env: dict[str, str]) -> Iterator[None]:
        options = [option for name, value in env.items() for option in ("-e", f"{name}={value}")]
        module = ["python", "-m", "tests.chaos.inside.load", str(self._seed), str(PER_S), self.acks]
        process = subprocess.Popen(
            ["docker", "exec", *options, container("driver"), *module],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            self.more(5)
            yield
            self.more(5)
        finally:
            self._stack.run("driver", "touch", f"{self.acks}.stop")
            _, said = process.communicate(timeout=180)
        if process.returncode:
            raise AssertionError(f"the load ended by itself: {said[-2_000:]}")

    def more(self, count: int, limit_s: float = ACK_LIMIT_S) -> None:
        """Until so many more applications were acknowledged than now."""
        goal = self._stack.acked(self._seed) + count
        wait_for(f"{goal} starts", lambda: self._stack.acked(self._seed) >= goal, limit_s)

    @contextmanager
    def fault(self) -> Iterator[None]:
        """The time from the fault to its end."""
        begun = time.monotonic()
        yield
        self.row.lasted_s = time.monotonic() - begun

    def wait_whole(self) -> None:
        """Until all replicas are in sync and both engines own their partitions again."""
        begun = time.monotonic()
        self._stack.wait_replicas("in_sync")
        self._stack.wait_ready()
        self.row.back_s = time.monotonic() - begun


class Bench:
    """Runs loads against one stack and keeps the rows."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.rows: list[Row] = []
        self._spoiled = False
        self._seed_first = SEED_FIRST + stack.loads()  # a stack that is up may have had some

    def _begin(self, fault: str) -> Load:
        """What fails spoils the log for all that follows, so the next load gets a new stack."""
        if self._spoiled:
            self.stack.up()
        self._spoiled = True
        self.rows.append(Row(fault))
        return Load(self.stack, self._seed_first + len(self.rows), self.rows[-1])

    @contextmanager
    def under_load(self, fault: str, **env: str) -> Iterator[Load]:
        """The demo's applications at a steady pace before, during and after the body."""
        load = self._begin(fault)
        with load.running(env):
            yield load

    def outage(self, mode: str, runs: int) -> tuple[Load, Outage]:
        """An outage of the dependency, from its beginning until all runs were served."""
        load = self._begin(f"dependency: {mode}")
        begun = time.monotonic()
        text = self.stack.inside("outage", mode, str(runs), load.acks, limit_s=900)
        load.row.outage = found = Outage(**json.loads(text))
        load.row.lasted_s = time.monotonic() - begun - found.recovered_after_s
        load.row.back_s = found.recovered_after_s
        return load, found

    def judge(self, load: Load) -> Verdict:
        """Everything that the stack's log and ledgers hold, once all runs have ended."""
        begun = time.monotonic()
        seed = load.acks.rpartition("-")[2]
        limits = (str(JUDGE_LIMIT_S),)
        text = self.stack.inside("judge", seed, load.acks, *limits, limit_s=JUDGE_LIMIT_S + 300)
        load.row.verdict = verdict = Verdict(**json.loads(text))
        load.row.judged_s = time.monotonic() - begun
        self._spoiled = bool(verdict.broken)
        return verdict
