"""The crash workload on a journal that is flushed to the disk, with nothing else: the lower
limit of those that flush.

A line says that a run is accepted, or that a step of it is done with a result. Lines that come up
together are flushed together. Its argument is the file, which is replayed first.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.crash_lab import body, requests

Line = tuple[str, int, int]
_ACCEPTED = -1  # in the place of a step


class Journal:
    """Durable lines, in order."""

    def __init__(self, file: Path) -> None:
        self._lines: asyncio.Queue[tuple[bytes, asyncio.Future[None]]] = asyncio.Queue()
        self._opened = os.open(file, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    async def append(self, lines: Iterable[Line]) -> None:
        """Returns when they are on the disk."""
        written = asyncio.get_running_loop().create_future()
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        self._lines.put_nowait((text.encode(), written))
        await written

    async def write(self) -> None:
        """Flush what there is, over and over."""
        while True:
            batch = [await self._lines.get()]
            while not self._lines.empty():
                batch.append(self._lines.get_nowait())
            os.write(self._opened, b"".join(text for text, _ in batch))
            await asyncio.to_thread(os.fsync, self._opened)
            for _, written in batch:
                written.set_result(None)


def replay(file: Path) -> dict[str, dict[int, int]]:
    """Each accepted run with the results of its steps. A line that the kill cut short is cut off:
    nobody was told that it is there.
    """
    found: dict[str, dict[int, int]] = defaultdict(dict)
    if not file.exists():
        return found
    content = file.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    os.truncate(file, len(whole))
    for line in whole.splitlines():
        run, step, value = json.loads(line)
        done = found[run]
        if step != _ACCEPTED:
            done[step] = value
    return found


class Engine:
    """Runs as tasks."""

    def __init__(self, journal: Journal, tasks: asyncio.TaskGroup) -> None:
        self._journal, self._tasks = journal, tasks
        self._runs: dict[str, asyncio.Task[int]] = {}
        self._slots = asyncio.Semaphore(requests.IN_FLIGHT)

    async def submit(self, runs: Sequence[str]) -> None:
        await self._journal.append((run, _ACCEPTED, 0) for run in runs)
        for run in runs:
            self.start(run, {})

    def start(self, run: str, done: dict[int, int]) -> None:
        """Do the steps that are not done yet."""
        self._runs[run] = self._tasks.create_task(self._steps(run, done))

    async def _steps(self, run: str, done: dict[int, int]) -> int:
        async with self._slots:
            await body.gate(run)
            for step in range(body.STEPS):
                if step not in done:
                    done[step] = await body.step_body(run, step)
                    await self._journal.append([(run, step, done[step])])
        return sum(done.values())

    async def result(self, run: str) -> int:
        return await self._runs[run]


async def main(file: Path, answers: int) -> None:
    found = replay(file)
    async with asyncio.TaskGroup() as tasks:
        journal = Journal(file)
        writer = tasks.create_task(journal.write())
        engine = Engine(journal, tasks)
        for run, done in found.items():
            engine.start(run, done)
        await requests.serve(engine, answers)
        writer.cancel()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), requests.keep_answers_apart()))
