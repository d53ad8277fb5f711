"""Load while something breaks, and the verdict afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.chaos.stack import FILES, PROJECT, ROOT, Stack
from tests.integration.engine.harness import wait_for

PER_S = float(os.environ.get("CHAOS_APPLICATIONS_PER_S", "2"))
SEED_FIRST = 100
ACK_LIMIT_S = 120.0
JUDGE_LIMIT_S = 240.0


@dataclass
class Load:
    """One load of its own seed, running in the driver."""

    stack: Stack
    seed: int
    begun: float = field(default_factory=time.monotonic)

    def more(self, count: int, limit_s: float = ACK_LIMIT_S) -> None:
        """Until so many more applications were acknowledged than now."""
        goal = self.stack.acked(self.seed) + count
        wait_for(f"{goal} starts", lambda: self.stack.acked(self.seed) >= goal, limit_s)


@dataclass
class Row:
    """One line of the closing table: a fault, how long it lasted, and what the judge found."""

    fault: str
    lasted_s: float = 0.0
    back_s: float = 0.0
    found: dict[str, object] = field(default_factory=dict)


class Bench:
    """Runs loads against one stack and keeps the rows."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.rows: list[Row] = []
        self._spoiled = False

    @contextmanager
    def under_load(self, fault: str, **env: str) -> Iterator[tuple[Load, Row]]:
        """Load before, during and after the body. Then the verdict must be without a problem.

        What fails spoils the log for all that follows, so the next load gets a new stack.
        """
        if self._spoiled:
            self.stack.up()
        self._spoiled = True
        load, row = Load(self.stack, SEED_FIRST + len(self.rows)), Row(fault)
        self.rows.append(row)
        acks = f"/chaos/acks-{load.seed}"
        options = [option for name, value in env.items() for option in ("-e", f"{name}={value}")]
        module = ["python", "-m", "tests.chaos.inside.load", str(load.seed), str(PER_S), acks]
        process = subprocess.Popen(
            ["docker", "compose", "-p", PROJECT, *FILES, "exec", "-T", *options, "driver", *module],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            load.more(5)
            yield load, row
            load.more(5)
        finally:
            self.stack.compose("exec", "-T", "driver", "touch", f"{acks}.stop")
            _, said = process.communicate(timeout=180)
        assert process.returncode == 0, said[-2_000:]
        text = self.stack.inside(
            "judge", str(load.seed), acks, str(JUDGE_LIMIT_S), limit_s=JUDGE_LIMIT_S + 300
        )
        row.found = json.loads(text)
        problems: list[str] = row.found["problems"]  # type: ignore[assignment]
        if problems:
            raise AssertionError("\n".join(problems))
        self._spoiled = False
