"""The step body of the crash workload, the same for every system, and the counting of its effects.

A step writes a file when it starts, works for `CRASH_SLEEP_S`, and writes one when it is done: its
effect. Files of a step beyond the first are duplicates.
"""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import NamedTuple

STEPS = 5


def folder() -> Path:
    return Path(os.environ["CRASH_FOLDER"])


def prepare(where: Path) -> None:
    """Make the folders for a fresh round."""
    for name in ("held", "started", "done"):
        (where / name).mkdir(parents=True, exist_ok=True)


async def gate(run: str) -> None:
    """Hold every run until the round begins, so that submission is not timed. It is looked at each
    `CRASH_GATE_S`.
    """
    go = folder() / "go"
    if not go.exists():
        (folder() / "held" / run).touch()
    while not go.exists():
        await asyncio.sleep(float(os.environ.get("CRASH_GATE_S", "0.02")))


def open_gate(where: Path) -> float:
    """Let the runs go; the time of it (Unix seconds)."""
    (where / "go").touch()
    return time.time()


async def step_body(run: str, step: int) -> int:
    """One step: its effect is a file of its own."""
    name = f"{run}.{step}.{uuid.uuid4().hex[:12]}"
    (folder() / "started" / name).touch()
    await asyncio.sleep(float(os.environ["CRASH_SLEEP_S"]))
    (folder() / "done" / name).write_text(f"{time.time()}\n")
    return step


class Effects(NamedTuple):
    """What the files say."""

    steps_done: int
    effects: int
    starts: int

    @property
    def duplicates(self) -> int:
        return self.effects - self.steps_done


def count_held(where: Path) -> int:
    """Runs that have come to the gate."""
    return sum(1 for _ in (where / "held").iterdir())


def count_done(where: Path) -> int:
    """Effects so far."""
    return sum(1 for _ in (where / "done").iterdir())


def effects(where: Path) -> Effects:
    """Count the files."""
    done = Counter(path.name.rsplit(".", 1)[0] for path in (where / "done").iterdir())
    return Effects(len(done), sum(done.values()), sum(1 for _ in (where / "started").iterdir()))
