"""A peer whose engine runs in the worker's own process, under the crash workload."""

from __future__ import annotations

import itertools
import json
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from benchmarks.crash_lab import body
from benchmarks.crash_lab.installing import worker_command, worker_environment
from benchmarks.crash_lab.system import cpu_seconds, memory_mb

LEFT_OUT: Final = {
    "engine": "its engine is in the worker",
    "standby": "its engine is in the worker",
}
_SUBMIT_S_MAX = 300.0
_RUN_S_MAX = 60.0
_END_S_MAX = 15.0
_RESULT = sum(range(body.STEPS))


class WorkerGone(Exception):  # noqa: N818 - what happened to a request
    """The worker has ended with a request in it; its log says why, if it was not killed."""


class Worker:
    """One process of it, and the requests that it has not answered yet."""

    def __init__(self, command: Sequence[str], env: dict[str, str], log: Path) -> None:
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                command,
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._waiting: dict[int, Future[list[int]]] = {}
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._gone = False
        self._reader = threading.Thread(target=self._read, name="answers", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        try:
            for line in self.process.stdout:
                answer = json.loads(line)
                with self._lock:
                    waiting = self._waiting.pop(answer["number"])
                waiting.set_result(answer["results"])
        finally:  # also when it answers what cannot be read
            with self._lock:
                self._gone = True
                left, self._waiting = self._waiting, {}
            for waiting in left.values():
                waiting.set_exception(WorkerGone())

    def ask(self, do: str, runs: Sequence[str], limit_s: float) -> list[int]:
        """Raises `TimeoutError` and `WorkerGone`."""
        answer: Future[list[int]] = Future()
        assert self.process.stdin is not None
        with self._lock:
            if self._gone:
                raise WorkerGone
            number = next(self._numbers)
            self._waiting[number] = answer
            self.process.stdin.write(
                json.dumps({"number": number, "do": do, "runs": list(runs)}) + "\n"
            )
            self.process.stdin.flush()
        return answer.result(limit_s)

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self._close()

    def end(self) -> None:
        """It ends once its requests do."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it is gone already
            self.process.stdin.close()
        try:
            self.process.wait(_END_S_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self._close()

    def _close(self) -> None:
        self.process.wait()
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):  # what was not sent yet is gone with the worker
                pipe.close()


class Store(Protocol):
    """Where the engine keeps its runs: a place in the folder, or a server beside the worker."""

    def up(self, folder: Path) -> str:
        """Start it; its address for the worker."""

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds used so far, by part."""

    def memory_mb(self) -> dict[str, float]:
        """Memory in use now, by part."""

    def down(self) -> None:
        """End what is up of it."""


@dataclass(frozen=True)
class FileStore:
    """A file, which needs nobody."""

    prefix: str = ""

    def up(self, folder: Path) -> str:
        return f"{self.prefix}{folder / 'runs'}"

    def cpu_s(self) -> dict[str, float]:
        return {}

    def memory_mb(self) -> dict[str, float]:
        return {}

    def down(self) -> None:
        """There is nothing to end."""


@dataclass
class InWorker:
    """`module`: the worker, of this folder; it recovers by the peer's own means whenever it
    starts.
    """

    name: str
    python: Path
    module: str
    store: Store = field(default_factory=FileStore)
    _ends: ExitStack = field(default_factory=ExitStack, init=False, repr=False)

    def up(self, folder: Path, sleep_s: float) -> None:
        self._used = 0.0
        self._log = folder / "worker.log"
        self._env = worker_environment(folder, sleep_s)
        with ExitStack() as ends:
            ends.callback(self.store.down)
            self._command = worker_command(self.python, self.module, self.store.up(folder))
            self._start()
            ends.callback(self._end)
            self._ends = ends.pop_all()

    def _start(self) -> None:
        self._worker = Worker(self._command, self._env, self._log)

    def _end(self) -> None:
        self._worker.end()

    def submit(self, runs: int) -> None:
        self._worker.ask("submit", run_names(runs), _SUBMIT_S_MAX)

    def wait_results(self, runs: int, limit_s: float) -> None:
        results = self._worker.ask("results", run_names(runs), limit_s)
        if results != [_RESULT] * runs:
            raise AssertionError(f"unexpected results: {results[:3]}")

    def kill_worker(self) -> None:
        self._used += cpu_seconds(self._worker.process.pid)
        self._worker.kill()
        self._start()

    def kill_server(self, *, restart: bool) -> None:
        raise NotImplementedError(LEFT_OUT["engine"])

    def cpu_s(self) -> dict[str, float]:
        used = self._used + cpu_seconds(self._worker.process.pid)
        return {"worker": used, **self.store.cpu_s()}

    def memory_mb(self) -> dict[str, float]:
        return {"worker": memory_mb(self._worker.process.pid), **self.store.memory_mb()}

    def run_once(self, number: int) -> None:
        self._worker.ask("run", [f"l{number}"], _RUN_S_MAX)

    def down(self) -> None:
        self._ends.close()


def run_names(runs: int) -> list[str]:
    """Those that a case submits."""
    return [f"r{number}" for number in range(runs)]
