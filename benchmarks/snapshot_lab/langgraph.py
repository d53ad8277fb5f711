"""LangGraph's checkpointer on the same trajectories, where it can be installed (PyPI)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.crash_lab.installing import CACHE
from benchmarks.snapshot_lab import trajectories

from dalsegno.schemas.control import Policy
from dalsegno.streams.core.context import Context

PACKAGES: Final = ("langgraph-checkpoint-sqlite==3.1.2", "msgspec")
_UNBOUNDED: Final = Policy(context_bytes_max=64 << 20, inline_bytes_max=32 << 20)
_CHILD: Final = """
import sqlite3, sys, tempfile, time
import msgspec
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver

seconds = 0.0
with tempfile.TemporaryDirectory() as folder:
    connection = sqlite3.connect(folder + "/db", check_same_thread=False)
    saver = SqliteSaver(connection)
    saver.setup()
    config, step = {}, 0
    for line in sys.stdin.buffer:
        run, _, context = line.decode().partition(" ")
        if config.get("configurable", {}).get("thread_id") != run:
            config = {"configurable": {"thread_id": run, "checkpoint_ns": ""}}
            step = 0
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = msgspec.msgpack.decode(bytes.fromhex(context))
        metadata = {"source": "loop", "step": step, "parents": {}}
        step += 1
        began = time.perf_counter()
        config = saver.put(config, checkpoint, metadata, {})
        seconds += time.perf_counter() - began
    sums = "SELECT SUM(LENGTH(checkpoint) + LENGTH(metadata)) FROM checkpoints"
    print(connection.execute(sums).fetchone()[0], seconds)
"""


class NotInstalled(Exception):  # noqa: N818 - a reason to leave the peer out
    """The peer cannot be had on this machine; the text says why."""


class Measured(NamedTuple):
    """Of all steps of one set: what is stored, and how long storing it took."""

    stored_bytes: int
    seconds: float


def install() -> Path:
    """A Python that has it, fetched once into a folder of its own. Raises `NotInstalled`."""
    python = CACHE / "langgraph" / "bin" / "python"
    try:
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", python.parents[1]], check=True)
        asked = [python, "-c", "import langgraph.checkpoint.sqlite, msgspec"]
        if subprocess.run(asked, check=False, capture_output=True).returncode:
            command = [python, "-m", "pip", "install", "--quiet", *PACKAGES]
            subprocess.run(command, check=True, capture_output=True)
    except (subprocess.CalledProcessError, OSError) as error:
        raise NotInstalled(f"not installed: {error}") from error
    return python


def measure(python: Path, name: str, most: int) -> Measured:
    """Every step of a set is put in a saver of its own, the whole context each time."""
    lines: list[str] = []
    for number, (base, steps) in enumerate(trajectories.runs(name)):
        if number >= most:
            break
        context = Context.create(base, _UNBOUNDED)
        for operations in steps:
            context.apply(operations, _UNBOUNDED).adopt()
            lines.append(f"{name}-{number} {context.pack().hex()}")
    done = subprocess.run(
        [python, "-c", _CHILD], input="\n".join(lines).encode(), check=True, capture_output=True
    )
    stored, seconds = done.stdout.split()
    return Measured(int(stored), float(seconds))
