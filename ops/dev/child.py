"""A child process of `dev` that is started again when it ends."""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from dalsegno.ops.dev.folder import DevFolder
from dalsegno.ops.embedded.child import Child as GuardedChild
from dalsegno.ops.guard import await_predecessor

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
        self._command = [sys.executable, "-m", "dalsegno.ops.cli", *arguments]
        self._words = " ".join(("dalsegno.ops.cli", *arguments))
        self._folder = folder
        self._env = {**os.environ, **env}
        self._child = GuardedChild(folder.pidfile(name))
        self._started_at = 0.0
        self._delay_s = _RESTART_S_FIRST
        self._due_at: float | None = None

    @property
    def alive(self) -> bool:
        """Whether the command runs."""
        return self._child.alive

    @property
    def log(self) -> Path:
        """What it prints."""
        return self._folder.log(self.name)

    def start(self) -> None:
        """Start it, once one of an earlier run has ended. Raises ChildStuckError."""
        stuck = await_predecessor(self._folder.pidfile(self.name), self._words)
        if stuck is not None:
            raise ChildStuckError(self.name, stuck)
        with self.log.open("ab") as log:
            self._child.spawn(self._command, log, self._env)
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
            return f"{self.name} ended with code {self._child.exit_code}, see {self.log}"
        if now >= self._due_at:
            self._due_at = None
            self.start()
        return None

    def terminate(self) -> None:
        """Ask it to stop."""
        self._child.terminate()

    def join(self) -> None:
        """Wait for its end; it is killed after 12 s."""
        self._child.join(_STOP_S_MAX)
