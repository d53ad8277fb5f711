"""A child process of `dev` that is started again when it ends."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from dalsegno.ops.dev.folder import DevFolder
from dalsegno.ops.guard import await_predecessor, pid_in, spawn_guarded

_RESTART_S_FIRST = 0.5
_RESTART_S_MAX = 30.0
_STEADY_S = 60.0
"""A child that lived this long has its restart delay forgotten."""
_STOP_S_MAX = 12.0
"""An engine stops within 10 s."""


class ChildStuckError(Exception):
    """The child of an earlier run of `dev` does not end."""

    def __init__(self, name: str, pid: int) -> None:
        super().__init__(f"{name} of an earlier run still lives as process {pid}: end it")


class Child:
    """One command of ours, `python -m dalsegno.ops.cli ARGUMENTS`, under a guard."""

    def __init__(
        self, name: str, arguments: Sequence[str], folder: DevFolder, env: Mapping[str, str]
    ) -> None:
        self.name = name
        self.restarts = 0
        self._command = [sys.executable, "-m", "dalsegno.ops.cli", *arguments]
        self._words = " ".join(("dalsegno.ops.cli", *arguments))
        self._folder = folder
        self._env = {**os.environ, **env}
        self._guard: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._delay_s = _RESTART_S_FIRST
        self._due_at: float | None = None

    @property
    def alive(self) -> bool:
        """Whether the command runs."""
        return self._guard is not None and self._guard.poll() is None

    @property
    def log(self) -> Path:
        """What it prints."""
        return self._folder.log(self.name)

    def start(self) -> None:
        """Start it, once one of an earlier run has ended. Raises ChildStuckError."""
        pidfile = self._folder.pidfile(self.name)
        stuck = await_predecessor(pidfile, self._words)
        if stuck is not None:
            raise ChildStuckError(self.name, stuck)
        with self.log.open("ab") as log:
            self._guard = spawn_guarded(self._command, pidfile, log, self._env)
        self._started_at = time.monotonic()

    def tend(self) -> str | None:
        """Start it again if it ended and its delay is over; says so once, when it has ended."""
        if self.alive:
            return None
        now = time.monotonic()
        if self._due_at is None:
            if now - self._started_at > _STEADY_S:
                self._delay_s = _RESTART_S_FIRST
            self._due_at = now + self._delay_s
            self._delay_s = min(self._delay_s * 2, _RESTART_S_MAX)
            code = self._guard.returncode if self._guard else 0
            return f"{self.name} ended with code {code}, see {self.log}"
        if now >= self._due_at:
            self._due_at = None
            self.restarts += 1
            self.start()
        return None

    def terminate(self) -> None:
        """Ask it to stop."""
        self._signal(signal.SIGTERM)

    def join(self) -> None:
        """Wait for its end; it is killed after 12 s."""
        if self._guard is None:
            return
        try:
            self._guard.wait(_STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._guard.wait()
        if self._guard.stdin is not None:
            self._guard.stdin.close()

    def _signal(self, number: int) -> None:
        pid = pid_in(self._folder.pidfile(self.name))
        if self.alive and pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
