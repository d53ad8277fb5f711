"""A real schema registry: Apicurio as a child JVM, in memory, on free ports."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dalsegno.ops.embedded.errors import EmbeddedKafkaError
from dalsegno.ops.embedded.jars import repositories
from dalsegno.ops.embedded.java import find_java
from dalsegno.ops.embedded.paths import cache_dir
from dalsegno.ops.embedded.ports import free_ports
from dalsegno.ops.guard import spawn_guarded

VERSION = "3.3.3"
_PATH = f"io/apicurio/apicurio-registry-app/{VERSION}/apicurio-registry-app-{VERSION}-all.tar.gz"
_READY_S = 180
_FETCH_S = 60


class NoRegistry(Exception):  # noqa: N818 - says what is the case
    """It cannot be had here; the reason is the text."""


def _fetched() -> Path:
    """The unpacked application; fetched on first use (159 MB), checked by the digest beside it."""
    folder = cache_dir() / f"apicurio-{VERSION}"
    if (folder / "quarkus-run.jar").exists():
        return folder
    url = f"{repositories()['central']}/{_PATH}"
    archive = folder.with_suffix(".tar.gz")
    try:
        with urllib.request.urlopen(url, timeout=_FETCH_S) as answer, archive.open("wb") as out:
            while block := answer.read(1 << 20):
                out.write(block)
        with urllib.request.urlopen(f"{url}.sha1", timeout=_FETCH_S) as answer:
            wanted = answer.read().decode().split()[0]
    except OSError as error:
        raise NoRegistry(f"the registry could not be fetched: {error}") from error
    with archive.open("rb") as data:
        found = hashlib.file_digest(data, "sha1").hexdigest()
    if found != wanted:
        raise NoRegistry(f"the registry's archive has digest {found}, not {wanted}")
    fresh = folder.with_suffix(".unpacking")
    with tarfile.open(archive) as packed:
        packed.extractall(fresh, filter="data")
    fresh.replace(folder)
    archive.unlink()
    return folder


class Apicurio:
    """A running registry. `url` is of its Confluent interface."""

    def __init__(self, url: str, guard: subprocess.Popen[bytes], pid_file: Path) -> None:
        self.url = url
        self._guard = guard
        self._pid_file = pid_file

    def freeze(self) -> None:
        """It stands still, and answers nobody."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        import os

        os.kill(int(self._pid_file.read_text()), number)

    def answers(self) -> bool:
        assert self._guard.poll() is None, "the registry has ended"
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.HTTPError, OSError):
            return False


@contextmanager
def apicurio(folder: Path) -> Iterator[Apicurio]:
    """Raises NoRegistry where it cannot be fetched or started."""
    try:
        java = find_java()
    except EmbeddedKafkaError as error:
        raise NoRegistry(str(error)) from error
    application = _fetched()
    port, management = free_ports(2)
    options = {
        "quarkus.http.port": port,
        "quarkus.http.host": "127.0.0.1",
        "quarkus.management.port": management,
        "quarkus.management.host": "127.0.0.1",
    }
    command = [
        java.path,
        "-Xmx384m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        *(f"-D{name}={value}" for name, value in options.items()),
        "-jar",
        str(application / "quarkus-run.jar"),
    ]
    pid_file = folder / "registry.pid"
    with (folder / "registry.log").open("wb") as log:
        guard = spawn_guarded(command, pid_file, log)
    try:
        made = Apicurio(f"http://127.0.0.1:{port}/apis/ccompat/v7", guard, pid_file)
        deadline_s = time.monotonic() + _READY_S
        while not made.answers():
            if time.monotonic() > deadline_s:
                raise NoRegistry(f"the registry did not answer within {_READY_S} s")
            time.sleep(0.2)
        yield made
    finally:
        if guard.stdin is not None:
            guard.stdin.close()  # the guard ends the JVM
        guard.wait(30)
