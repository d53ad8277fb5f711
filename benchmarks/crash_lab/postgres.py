"""A PostgreSQL of a round's own, where this machine has one installed."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.crash_lab.installing import NotInstallable
from benchmarks.crash_lab.system import cpu_seconds, memory_mb

from dalsegno.ops.embedded.child import Child
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
    _server: Child | None = field(default=None, init=False, repr=False)

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
        self._wait_ready(self._started(folder, port))
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

    def _started(self, folder: Path, port: int) -> Child:
        settings = {
            "port": port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        command = [str(self.folder_of_programs / "postgres"), "-D", str(self._data), *options]
        self._server = Child(folder / "postgres.pid")
        with (folder / "postgres.log").open("ab") as log:
            self._server.spawn([*self._as_other_user(), *command], log)
        return self._server

    def _as_other_user(self) -> list[str]:
        """What begins a command that is run as `_user`, in a folder which that may enter."""
        if self._user is None:
            return []
        group = pwd.getpwnam(self._user).pw_gid
        who = [f"--reuid={self._user}", f"--regid={group}", "--clear-groups"]
        return ["env", f"--chdir={self._data.parent}", "setpriv", *who]

    def _wait_ready(self, server: Child) -> None:
        """It says so itself, on the last line of its pid file."""
        state, end = self._data / "postmaster.pid", time.monotonic() + _READY_S_MAX
        while not state.exists() or state.read_text().split()[-1:] != ["ready"]:
            if not server.alive or time.monotonic() > end:
                raise TimeoutError("PostgreSQL did not become ready")
            time.sleep(0.02)

    def _processes(self) -> list[int]:
        """The server and one per connection and task."""
        main = None if self._server is None else self._server.pid
        if main is None:
            return []
        children = Path(f"/proc/{main}/task/{main}/children").read_text().split()
        return [main, *map(int, children)]

    def cpu_s(self) -> dict[str, float]:
        used = sum(cpu_seconds(pid, with_ended=True) for pid in self._processes())
        return {"server": used}

    def memory_mb(self) -> dict[str, float]:
        return {"server": sum(memory_mb(pid) for pid in self._processes())}

    def down(self) -> None:
        if self._server is not None:
            self._server.end(_END_S_MAX)
