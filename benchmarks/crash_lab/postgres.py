"""A PostgreSQL of a round's own, where this machine has one installed."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.crash_lab.installing import NotInstallable
from benchmarks.crash_lab.system import cpu_seconds, memory_mb

from dalsegno.ops.embedded.ports import free_ports

_VERSIONS: Final = Path("/usr/lib/postgresql")  # where Debian puts each
_USERS: Final = ("postgres", "nobody")  # it refuses root
_NAME: Final = "bench"
_READY_S_MAX: Final = 30.0
_END_S_MAX: Final = 15.0


def programs() -> Path:
    """The folder of `initdb` and `postgres`. Raises `NotInstallable`."""
    by_version = sorted(_VERSIONS.glob("*/bin"), key=lambda path: path.parent.name, reverse=True)
    found = shutil.which("initdb")
    for folder in ([Path(found).resolve().parent] if found else []) + by_version:
        if all((folder / name).exists() for name in ("initdb", "postgres")):
            return folder
    raise NotInstallable("PostgreSQL (initdb, postgres) is not on PATH or in Debian's folders")


def _other_user() -> str | None:
    """Who runs it when we are root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(user for user in _USERS if user in known)


@dataclass
class Postgres:
    """Its files in the round's folder, a free port, a password of its own; writes are flushed to
    the disk, as it does by default.
    """

    folder_of_programs: Path

    def up(self, folder: Path) -> str:
        self._user = _other_user()
        self._data, password = folder / "postgres" / "data", secrets.token_hex(16)
        self._data.parent.mkdir()
        (secret := self._data.parent / "password").write_text(password)
        if self._user is not None:
            folder.chmod(0o711)  # it has to come through, and sees nothing else
            for path in (self._data.parent, secret):
                shutil.chown(path, self._user)
        self._initialise(secret)
        (port,) = free_ports(1)
        self._start(port)
        try:
            self._wait_ready()
        except TimeoutError:
            self.down()
            raise
        return f"postgresql://{_NAME}:{password}@127.0.0.1:{port}/postgres"

    def _initialise(self, secret: Path) -> None:
        options = ["-D", str(self._data), "-U", _NAME, f"--pwfile={secret}"]
        options += ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C"]
        subprocess.run(
            [self.folder_of_programs / "initdb", *options],
            check=True,
            capture_output=True,
            user=self._user,
            cwd=self._data.parent,
        )

    def _start(self, port: int) -> None:
        settings = {
            "port": port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with (self._data.parents[1] / "postgres.log").open("ab") as log:
            self._server = subprocess.Popen(
                [self.folder_of_programs / "postgres", "-D", self._data, *options],
                stdout=log,
                stderr=log,
                user=self._user,
                cwd=self._data.parent,
            )

    def _wait_ready(self) -> None:
        """It says so itself, on the last line of its pid file."""
        state, end = self._data / "postmaster.pid", time.monotonic() + _READY_S_MAX
        while not state.exists() or state.read_text().split()[-1:] != ["ready"]:
            if self._server.poll() is not None or time.monotonic() > end:
                raise TimeoutError("PostgreSQL did not become ready")
            time.sleep(0.02)

    def _processes(self) -> list[int]:
        """The server and one per connection and task."""
        main = self._server.pid
        children = Path(f"/proc/{main}/task/{main}/children").read_text().split()
        return [main, *map(int, children)]

    def cpu_s(self) -> dict[str, float]:
        used = sum(cpu_seconds(pid, with_ended=True) for pid in self._processes())
        return {"server": used}

    def memory_mb(self) -> dict[str, float]:
        return {"server": sum(memory_mb(pid) for pid in self._processes())}

    def down(self) -> None:
        self._server.send_signal(signal.SIGINT)  # connections are cut, and it ends in order
        try:
            self._server.wait(_END_S_MAX)
        except subprocess.TimeoutExpired:
            self._server.send_signal(signal.SIGQUIT)
            self._server.wait()
