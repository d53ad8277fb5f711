"""The demo's processes: each in its own log file, ended with the demo however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from dalsegno.ops.guard import pid_in, spawn_guarded


class Fleet:
    """Named child processes that can be killed and started again under the same name."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self._folder = folder
        self._env = {**os.environ, **env}
        self._commands: dict[str, tuple[list[str], dict[str, str]]] = {}
        self._guards: dict[str, subprocess.Popen[bytes]] = {}

    def extend(self, env: dict[str, str]) -> None:
        """What is started from now on has these variables, too."""
        self._env.update(env)

    def start(self, name: str, command: list[str], env: dict[str, str] | None = None) -> None:
        """Start `command` (arguments after the Python interpreter) as `name`; `env` is its own."""
        own = env or {}
        self._commands[name] = (command, own)
        with (self._folder / f"{name}.log").open("ab") as log:
            self._guards[name] = spawn_guarded(
                [sys.executable, *command], self._pidfile(name), log, {**self._env, **own}
            )

    def _pidfile(self, name: str) -> Path:
        return self._folder / f"{name}.pid"

    def _signal(self, name: str, number: signal.Signals) -> None:
        pid = pid_in(self._pidfile(name))
        if pid is not None and self.alive(name):
            os.kill(pid, number)

    def kill(self, name: str) -> None:
        """kill -9."""
        self._signal(name, signal.SIGKILL)
        _ended(self._guards.pop(name))

    def restart(self, name: str) -> None:
        self.start(name, *self._commands[name])

    def alive(self, name: str) -> bool:
        guard = self._guards.get(name)
        return guard is not None and guard.poll() is None

    def names(self) -> list[str]:
        return list(self._commands)

    def stop(self, limit_s: float = 12.0) -> None:
        """Ask every process to end; kill those that have not after `limit_s`."""
        for name in self._guards:
            self._signal(name, signal.SIGTERM)
        end = time.monotonic() + limit_s
        for name, guard in self._guards.items():
            try:
                guard.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                self._signal(name, signal.SIGKILL)
            _ended(guard)
        self._guards.clear()


def _ended(guard: subprocess.Popen[bytes]) -> None:
    """Waits for a process, and closes what held it."""
    guard.wait()
    if guard.stdin is not None:
        guard.stdin.close()


def wait_for(url: str, limit_s: float = 60.0) -> None:
    """Poll `url` until it answers 200. Raises `TimeoutError` naming it."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(url, timeout=2) as response:
                if response.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    raise TimeoutError(f"{url} did not answer within {limit_s:g} s")
