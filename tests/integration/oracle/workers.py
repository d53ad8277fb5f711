"""Workers of `effects_worker` as processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from tests.integration.engine.harness import ROOT, Lab


class WorkerProcess:
    """One worker under a stable name. Its log is a file in the lab's folder."""

    def __init__(self, lab: Lab, name: str, receiver: str) -> None:
        self._lab = lab
        self.name = f"{lab.prefix}-{name}"
        self._receiver = receiver
        self._log = lab.folder / f"worker-{name}.log"
        self.process = self._spawn()

    def _spawn(self) -> subprocess.Popen[bytes]:
        env = {
            **os.environ,
            "DALSEGNO_BOOTSTRAP_SERVERS": self._lab.bootstrap,
            "DALSEGNO_PREFIX": self._lab.prefix,
        }
        module = "tests.integration.oracle.effects_worker"
        with self._log.open("ab") as out:
            return subprocess.Popen(
                [sys.executable, "-m", module, self.name, self._receiver],
                cwd=ROOT,
                env=env,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def tail(self) -> str:
        return self._log.read_text(errors="replace")[-2_000:]

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill_and_restart(self) -> None:
        """kill -9, and again under the same name."""
        self.end()
        self.process = self._spawn()

    def end(self) -> None:
        if self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGKILL)
            self.process.wait(10)
