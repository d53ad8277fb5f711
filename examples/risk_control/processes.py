"""The demo's processes: each in its own log file, ended with the demo however it ends."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    """Linux: the kernel kills the child when the demo dies; elsewhere `Fleet.stop` has to do."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Fleet:
    """Named child processes that can be killed and started again under the same name."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self._folder = folder
        self._env = {**os.environ, **env}
        self._commands: dict[str, list[str]] = {}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: list[str]) -> None:
        """Start `command` (arguments after the Python interpreter) as `name`."""
        self._commands[name] = command
        log = (self._folder / f"{name}.log").open("ab")
        with log:
            self._running[name] = subprocess.Popen(
                [sys.executable, *command],
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_parent,
            )

    def kill(self, name: str) -> None:
        """kill -9."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def restart(self, name: str) -> None:
        self.start(name, self._commands[name])

    def alive(self, name: str) -> bool:
        process = self._running.get(name)
        return process is not None and process.poll() is None

    def names(self) -> list[str]:
        return list(self._commands)

    def stop(self, limit_s: float = 12.0) -> None:
        """Ask every process to end; kill those that have not after `limit_s`."""
        for process in self._running.values():
            process.terminate()
        end = time.monotonic() + limit_s
        for process in self._running.values():
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running.clear()


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
