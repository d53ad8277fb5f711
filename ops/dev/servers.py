"""The servers below the engines, the broker and the object store: started again when they end."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from typing import Final, Protocol

STARTS_MAX: Final = 5
WINDOW_S: Final = 60.0


class Server(Protocol):
    """An embedded server: on the same data and port after each start."""

    @property
    def alive(self) -> bool:
        """Whether it is."""

    @property
    def log(self) -> Path:
        """What it prints."""

    def kill(self) -> None:
        """As a crash."""

    def start(self) -> object:
        """Start it, or do nothing if it is alive."""

    def stop(self) -> None:
        """End it cleanly."""


class ServerEndsError(Exception):
    """A server ends again and again."""


class Minder:
    """Looks after one server."""

    def __init__(self, name: str, server: Server) -> None:
        self._name = name
        self._server = server
        self._starts: deque[float] = deque(maxlen=STARTS_MAX)

    def tend(self) -> str | None:
        """Start it again if it ended, and say so. Raises ServerEndsError, and what `start` does."""
        if self._server.alive:
            return None
        now = time.monotonic()
        if len(self._starts) == STARTS_MAX and now - self._starts[0] < WINDOW_S:
            raise ServerEndsError(f"{self._name} ends again and again, see {self._server.log}")
        self._starts.append(now)
        self._server.kill()
        self._server.start()
        return f"{self._name} ended, started again on the same data and port"
