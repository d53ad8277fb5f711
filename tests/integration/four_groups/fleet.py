"""The processes of a group: what a schedule kills comes back, what it freezes goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final

from tests.integration.four_groups.boundaries import Act, Interruption
from tests.integration.four_groups.interrupting import lines_of

ROOT: Final = Path(__file__).parents[3]
_LOOK_S: Final = 0.02
_MODULES: Final = "tests.integration.four_groups."


class Fleet:
    """Child processes by name, kept alive by a thread until `stop`. `wrong`: ends nobody caused."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self._folder = folder
        self._env = {**os.environ, **env}
        self._commands: dict[str, list[str]] = {}
        self._own: dict[str, dict[str, str]] = {}
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._frozen: dict[str, float] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="fleet")
        self.restarts = 0
        self.wrong: list[str] = []

    def start(
        self, name: str, module: str, *arguments: str, env: dict[str, str] | None = None
    ) -> None:
        """Starts a module of this suite as `name`. `env`: what only it is told."""
        self._own[name] = env or {}
        self._commands[name] = [sys.executable, "-m", _MODULES + module, *arguments]
        self._spawn(name)

    def keep(self) -> None:
        """From now on everything is kept alive."""
        self._thread.start()

    def hits(self) -> list[Interruption]:
        """Interruptions that have happened, by process in their order."""
        found = []
        for name in self._commands:
            found += [Interruption(*each) for each in lines_of(self._folder / f"{name}.hits")]
        return found

    def stop(self) -> None:
        """Ends the keeping and every process, politely where it answers."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        for child in self._children.values():
            child.send_signal(signal.SIGCONT)
            child.terminate()
        for name, child in self._children.items():
            try:
                code = child.wait(12)
            except subprocess.TimeoutExpired:
                child.kill()
                code = child.wait()
            if code not in {0, -signal.SIGTERM}:
                self.wrong.append(f"{name} ended with {code}: {self.tail(name)}")
        self._children.clear()

    def tail(self, name: str) -> str:
        """The end of a process's log."""
        return (self._folder / f"{name}.log").read_text(errors="replace")[-2_000:]

    def _spawn(self, name: str) -> None:
        with (self._folder / f"{name}.log").open("ab") as log:
            self._children[name] = subprocess.Popen(
                self._commands[name], cwd=ROOT, env={**self._env, **self._own[name]},
                stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def _keep(self) -> None:
        while not self._stopping.wait(_LOOK_S):
            for name, child in list(self._children.items()):
                self._look(name, child)

    def _look(self, name: str, child: subprocess.Popen[bytes]) -> None:
        code = child.poll()
        if code is not None:
            last = self._last(name)
            if code != -signal.SIGKILL or last is None or last.act != Act.KILL:
                self.wrong.append(f"{name} ended with {code}: {self.tail(name)}")
            self.restarts += 1
            self._spawn(name)
            return
        now = time.monotonic()
        if name in self._frozen:
            if now >= self._frozen[name]:
                del self._frozen[name]
                child.send_signal(signal.SIGCONT)
        elif _stopped(child.pid) and (last := self._last(name)) is not None:
            self._frozen[name] = now + last.lasts_ms / 1_000

    def _last(self, name: str) -> Interruption | None:
        lines = lines_of(self._folder / f"{name}.hits")
        return Interruption(*lines[-1]) if lines else None


def _stopped(pid: int) -> bool:
    """Whether the kernel says that the process is stopped by a signal."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state == "T"
