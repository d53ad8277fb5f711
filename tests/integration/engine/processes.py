"""Modules that run as processes of their own, and can be killed, frozen and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[3]


class ModuleProcess:
    """`python -m MODULE ARGUMENTS…`. Its log is a file, which later starts go on with."""

    def __init__(self, log: Path, module: str, *arguments: str) -> None:
        self.log = log
        self._command = [sys.executable, "-m", module, *arguments]
        self.process = self._spawn()

    def environment(self) -> Mapping[str, str]:
        """Beside ours; asked at each start."""
        return {}

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as out:
            return subprocess.Popen(
                self._command,
                cwd=ROOT,
                env={**os.environ, **self.environment()},
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def restart(self) -> None:
        assert self.process.poll() is not None
        self.process = self._spawn()

    def said(self) -> str:
        """All of its log."""
        return self.log.read_text(errors="replace")

    def tail(self) -> str:
        return self.said()[-3_000:]

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait(10)

    def term(self, limit_s: float = 12.0) -> int:
        """SIGTERM; returns the exit code."""
        self.signal(signal.SIGTERM)
        return self.process.wait(limit_s)

    def end(self) -> None:
        """Kill it if it lives, frozen or not."""
        if self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.kill()
