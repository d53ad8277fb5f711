"""A peer with a server of its own and a worker: two processes that can be killed and come again."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from benchmarks.crash_lab.installing import NotInstallable
from benchmarks.crash_lab.system import cpu_seconds, memory_mb

from dalsegno.ops.embedded.child import Child


class Served:
    """`up` of each peer sets folder, environment, commands and children by part, and what ends
    them. None of them can outlive us.
    """

    _folder: Path
    _env: dict[str, str]
    _commands: dict[str, list[str]]

    def __init__(self) -> None:
        self._children: dict[str, Child] = {}
        self._used: dict[str, float] = {}
        self._ends = ExitStack()

    def _beneath(self) -> dict[str, int]:
        """Pids, by part, of what the server needs."""
        return {}

    def _start(self, part: str) -> None:
        with (self._folder / f"{part}.log").open("ab") as log:
            self._children[part].spawn(self._commands[part], log, self._env)

    def _crash(self, part: str) -> None:
        self._used[part] = self.cpu_s()[part]
        self._children[part].kill()
        self._start(part)

    def kill_worker(self) -> None:
        self._crash("worker")

    def kill_server(self, *, restart: bool) -> None:
        if not restart:
            raise NotInstallable("one server has no standby")
        self._crash("server")

    def _pids(self) -> dict[str, int]:
        pids = {part: child.pid for part, child in self._children.items()}
        return {part: pid for part, pid in pids.items() if pid is not None} | self._beneath()

    def cpu_s(self) -> dict[str, float]:
        pids = self._pids().items()
        return {part: self._used.get(part, 0.0) + cpu_seconds(pid) for part, pid in pids}

    def memory_mb(self) -> dict[str, float]:
        return {part: memory_mb(pid) for part, pid in self._pids().items()}

    def down(self) -> None:
        self._ends.close()
