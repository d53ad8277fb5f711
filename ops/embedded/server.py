"""What the embedded servers have in common: a guarded child on a data folder of its own."""

from __future__ import annotations

import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from dalsegno.ops.embedded.child import Child
from dalsegno.ops.embedded.claim import claim
from dalsegno.ops.embedded.ports import free_ports, is_free


class EmbeddedServer(ABC):
    """Owned by this process and ended with it. Nobody else starts on its folder meanwhile.

    `data` None means a temporary folder. `port` None means the port of the folder's last start if
    it is free, else any.
    """

    pid_file: ClassVar[str]
    stop_s: ClassVar[float]

    def __init__(self, data: Path | str | None, port: int | None, temporary: str) -> None:
        """`temporary`: how the name of a temporary folder begins."""
        self._temporary = data is None
        self.data = Path(data or tempfile.mkdtemp(prefix=temporary)).absolute()
        self.port = port
        self._child = Child(self.data / self.pid_file)
        self._lock: int | None = None

    @abstractmethod
    def _not_started(self, what: str) -> Exception:
        """The error about something, such as `port`, that is there only once it was started."""

    @abstractmethod
    def start(self, timeout_s: float = 60.0) -> Self:
        """Start, or come back after a crash on the same data and port."""

    @property
    def pid(self) -> int:
        """Its own pid, for tests that kill or stop it."""
        pid = self._child.pid
        if pid is None:
            raise self._not_started("process")
        return pid

    @property
    def alive(self) -> bool:
        """Whether it is."""
        return self._child.alive

    @contextmanager
    def _claimed(self) -> Iterator[None]:
        """The folder is ours, and stays so unless the start fails. Raises DataInUseError."""
        self.data.mkdir(parents=True, exist_ok=True)
        if self._lock is None:
            self._lock = claim(self.data, self.pid_file)
        try:
            yield
        except BaseException:
            self._release()
            raise

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _choose_port(self) -> int:
        """That of the last start if it is free, else any. Not for one whose port is given."""
        with suppress(OSError, ValueError):
            last = int((self.data / "port").read_text())
            if is_free(last):
                return last
        return free_ports(1)[0]

    def _started_on(self, port: int) -> None:
        (self.data / "port").write_text(str(port))
        self.port = port

    def kill(self) -> None:
        """As a crash: kill -9. `start` brings it back on the same data and port."""
        self._child.kill()

    def stop(self) -> None:
        """End cleanly, or be killed after `stop_s`; temporary data is deleted."""
        self._child.end(self.stop_s)
        self._release()
        if self._temporary:
            shutil.rmtree(self.data, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
