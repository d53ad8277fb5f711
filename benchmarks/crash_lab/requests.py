"""What a client asks of a worker that has its engine in itself: a line of JSON each way.

Asked: `{"number": 1, "do": "submit" | "results" | "run", "runs": [...]}`; `run` is both in one. The
answer has the number and the results. The engine's own output must not come between: what it
prints goes to the log.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from typing import Protocol

from benchmarks.crash_lab import body

IN_FLIGHT = 200  # runs of a worker at a time, as many as ours takes on


class Engine(Protocol):
    """The engine in the worker. A run that it has accepted goes on by itself after a restart."""

    async def submit(self, runs: Sequence[str]) -> None:
        """Accept the runs, and start them."""

    async def result(self, run: str) -> int:
        """Wait for the result of an accepted run."""


async def _answer(engine: Engine, do: str, runs: Sequence[str]) -> list[int]:
    if do in ("submit", "run"):
        await engine.submit(runs)
    if do in ("results", "run"):
        return await asyncio.gather(*(engine.result(run) for run in runs))
    return []


async def serve(engine: Engine, answers: int) -> None:
    """Answer until the client closes its end, or is gone. An engine that fails ends the worker."""
    lines = asyncio.StreamReader(limit=1 << 20)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)

    async def reply(number: int, do: str, runs: Sequence[str]) -> None:
        results = await _answer(engine, do, runs)
        os.write(answers, json.dumps({"number": number, "results": results}).encode() + b"\n")

    async def read(replies: asyncio.TaskGroup) -> None:
        while line := await lines.readline():
            asked = json.loads(line)
            replies.create_task(reply(asked["number"], asked["do"], asked["runs"]))

    async with asyncio.TaskGroup() as replies:
        await read(replies)


def keep_answers_apart() -> int:
    """Where the answers go; what anybody prints goes to stderr from now on. Before any import that
    might print.
    """
    answers = os.dup(1)
    os.dup2(2, 1)
    return answers


async def until_held(runs: int) -> None:
    """Until so many runs stand at the gate, or it is open."""
    where = body.folder()
    while not (where / "go").exists() and body.count_held(where) < runs:
        await asyncio.sleep(0.02)
