"""One guarded child process: spawned, killed as by a crash, or ended cleanly."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from dalsegno.ops.guard import pid_in, spawn_guarded

_KILL_S_MAX: Final = 10.0


class Child:
    """The process whose pid is in `pid_file`; it cannot outlive us."""

    def __init__(self, pid_file: Path) -> None:
        self._pid_file = pid_file
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Its own pid, not its guard's; None before the first start."""
        return pid_in(self._pid_file)

    @property
    def alive(self) -> bool:
        """Whether it is."""
        return self._guard is not None and self._guard.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Of one that has ended."""
        return None if self._guard is None else self._guard.poll()

    def spawn(
        self, command: Sequence[str], output: IO[bytes], env: Mapping[str, str] | None = None
    ) -> None:
        """Start it."""
        self._guard = spawn_guarded(command, self._pid_file, output, env)

    def kill(self) -> None:
        """As a crash: kill -9. Of one that has ended there is nothing to kill."""
        guard = self._guard
        if guard is None:
            return
        limit = time.monotonic() + _KILL_S_MAX
        while guard.poll() is None and self.pid is None:
            if time.monotonic() > limit:  # a guard that never wrote a pid has no child to kill
                guard.kill()
            time.sleep(0.01)
        if guard.poll() is None:
            self._send(signal.SIGKILL)
        guard.wait(_KILL_S_MAX)
        if guard.stdin is not None:
            guard.stdin.close()

    def terminate(self) -> None:
        """Ask it to end."""
        if self.alive:
            self._send(signal.SIGCONT)  # a test may have stopped it
            self._send(signal.SIGTERM)

    def join(self, timeout_s: float) -> None:
        """Wait for its end, and kill it if that does not come in time."""
        if self._guard is not None:
            with suppress(subprocess.TimeoutExpired):
                self._guard.wait(timeout_s)
        self.kill()

    def end(self, timeout_s: float) -> None:
        """`terminate` and `join`."""
        self.terminate()
        self.join(timeout_s)

    def _send(self, number: signal.Signals) -> None:
        pid = self.pid
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
