"""The recorded workflows: tasks, who waits for whom, and how long each ran.

Read in place from the shared data beside the project; nothing of them is copied into it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import zstandard

DAGS = Path(__file__).parents[3] / "shared" / "data" / "dags" / "dags.jsonl.zst"


class Task(NamedTuple):
    """One task as it ran: seconds, and the ids of the tasks it waited for."""

    id: str
    parents: tuple[str, ...]
    runtime_s: float


class Trace(NamedTuple):
    """One execution of a workflow. `tasks` are in an order in which parents come first."""

    instance: str
    tasks: tuple[Task, ...]

    @property
    def work_s(self) -> float:
        """Total work."""
        return sum(task.runtime_s for task in self.tasks)

    @property
    def critical_path_s(self) -> float:
        """Longest path through the graph."""
        ends: dict[str, float] = {}
        for task in self.tasks:
            begin = max((ends[parent] for parent in task.parents), default=0.0)
            ends[task.id] = begin + task.runtime_s
        return max(ends.values())

    def bound_s(self, width: int) -> float:
        """No schedule on `width` workers ends sooner: max(critical path, work / width)."""
        return max(self.critical_path_s, self.work_s / width)

    def scaled(self, factor: float) -> Trace:
        """The same graph with every runtime multiplied."""
        tasks = (task._replace(runtime_s=task.runtime_s * factor) for task in self.tasks)
        return self._replace(tasks=tuple(tasks))


def read(path: Path = DAGS) -> Iterator[Trace]:
    """Every trace of the file, smallest first. Raises `FileNotFoundError` where it is absent."""
    with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as lines:
        rows = [json.loads(line) for line in lines.read().splitlines() if line]
    for row in sorted(rows, key=lambda row: len(row["tasks"])):
        tasks = {
            task["id"]: Task(task["id"], tuple(task["parents"]), float(task["runtime_s"]))
            for task in row["tasks"]
        }
        yield Trace(row["instance"], tuple(_parents_first(tasks)))


def _parents_first(tasks: dict[str, Task]) -> Iterator[Task]:
    left = {name: len(set(task.parents)) for name, task in tasks.items()}
    children: dict[str, list[str]] = {name: [] for name in tasks}
    for task in tasks.values():
        for parent in set(task.parents):
            children[parent].append(task.id)
    ready = [name for name, count in left.items() if count == 0]
    while ready:
        name = ready.pop()
        yield tasks[name]
        for child in children[name]:
            left[child] -= 1
            if left[child] == 0:
                ready.append(child)
