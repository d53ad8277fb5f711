"""Temporal under the crash workload: its development server on SQLite, one worker.

The server is a `temporal` on PATH, else one built with `go`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks.crash_lab.driven import Driven
from benchmarks.crash_lab.installing import CACHE, NotInstallable, python_with

from dalsegno.ops.embedded.ports import free_ports

MODULE: Final = "github.com/temporalio/cli/cmd/temporal@v1.5.1"
SDK: Final = "temporalio==1.35.0"
# Each commit is flushed, and several times as quickly as by the server's own setting.
_PRAGMAS: Final = ("journal_mode=WAL", "synchronous=FULL")


def install() -> Callable[[], Temporal]:
    """Finds or builds the server and fetches the SDK, once. Raises `NotInstallable`."""
    server = shutil.which("temporal") or str(_built())
    python = python_with("temporal", SDK)
    return lambda: Temporal(server, python)


def _built() -> Path:
    """The server, built in some minutes at the first call."""
    folder = CACHE / "temporal"
    binary = folder / "temporal"
    if binary.exists():
        return binary
    go = shutil.which("go")
    if go is None:
        raise NotInstallable("neither temporal nor go is on PATH")
    environment = {**os.environ, "GOBIN": str(folder)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([go, "install", MODULE], env=environment, check=True, capture_output=True)
    except subprocess.CalledProcessError as error:
        told = error.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise NotInstallable(f"go install {MODULE} failed: {told}") from error
    except OSError as error:
        raise NotInstallable(f"go install {MODULE} failed: {error}") from error
    return binary


class Temporal(Driven):
    """Its server keeps its port and its database over a crash."""

    name = "temporal"

    def __init__(self, server: str, python: Path) -> None:
        super().__init__(python)
        self._server = server

    def _prepare(self, folder: Path, ends: ExitStack) -> dict[str, str]:  # noqa: ARG002 - a file is all it needs
        (self._port,) = free_ports(1)
        return {"TEMPORAL_SERVER": f"127.0.0.1:{self._port}"}

    def _server_command(self, folder: Path) -> list[str]:
        command = [self._server, "server", "start-dev", "--headless", "--log-level", "error"]
        command += ["--ip", "127.0.0.1", "--port", str(self._port)]
        command += ["--db-filename", str(folder / "temporal.db")]
        return command + [word for pragma in _PRAGMAS for word in ("--sqlite-pragma", pragma)]
