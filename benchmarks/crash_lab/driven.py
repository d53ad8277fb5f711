"""A peer of three processes: a server of its own, a worker, and a driver that has its client."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar, Final

from benchmarks.crash_lab import body
from benchmarks.crash_lab.in_worker import Worker, run_names
from benchmarks.crash_lab.installing import worker_command, worker_environment
from benchmarks.crash_lab.served import Served

from dalsegno.ops.embedded.child import Child

_UP_S_MAX: Final = 120.0
_SUBMIT_S_MAX: Final = 120.0
_RUN_S_MAX: Final = 60.0
_END_S_MAX: Final = 20.0


class Driven(Served, ABC):
    """The worker is `<name>_worker` of this folder, the driver `<name>_driver`: it answers requests
    once the server answers it.
    """

    name: ClassVar[str]

    def __init__(self, python: Path) -> None:
        super().__init__()
        self._python = python

    @abstractmethod
    def _prepare(self, folder: Path, ends: ExitStack) -> dict[str, str]:
        """Start what the server needs, and leave with `ends` how that ends. Returns the environment
        of all three processes, beside the body's.
        """

    @abstractmethod
    def _server_command(self, folder: Path) -> list[str]:
        """Runs the server."""

    def up(self, folder: Path, sleep_s: float) -> None:
        self._folder = folder
        with ExitStack() as ends:
            self._env = {**worker_environment(folder, sleep_s), **self._prepare(folder, ends)}
            self._commands = {
                "server": self._server_command(folder),
                "worker": worker_command(self._python, f"{self.name}_worker"),
            }
            self._children = {part: Child(folder / f"{part}.pid") for part in self._commands}
            for child in self._children.values():
                ends.callback(child.end, _END_S_MAX)
            self._start("server")
            command = worker_command(self._python, f"{self.name}_driver")
            self._driver = Worker(command, self._env, folder / "driver.log")
            ends.callback(self._driver.end)
            self._driver.ask("submit", [], _UP_S_MAX)
            self._start("worker")
            self._ends = ends.pop_all()

    def submit(self, runs: int) -> None:
        self._driver.ask("submit", run_names(runs), _SUBMIT_S_MAX)

    def wait_results(self, runs: int, limit_s: float) -> None:
        results = self._driver.ask("results", run_names(runs), limit_s)
        if results != [sum(range(body.STEPS))] * runs:
            raise AssertionError(f"{self.name}: unexpected results: {results[:3]}")

    def run_once(self, number: int) -> None:
        self._driver.ask("run", [f"l{number}"], _RUN_S_MAX)
