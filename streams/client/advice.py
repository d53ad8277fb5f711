"""What a service that drives itself is told of its dependencies: whether it may call one now."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from dalsegno.streams.client.engines import Engines

FRESH_S: Final = 1.0
"""For so long an answer is used again: a service may ask before each of its calls."""


class Advice:
    """Thread-safe. One question to the engines answers for every dependency."""

    def __init__(self, engines: Engines, clock: Callable[[], float] = time.monotonic) -> None:
        self._engines = engines
        self._clock = clock
        self._lock = threading.Lock()
        self._away: frozenset[str] = frozenset()
        self._asked_s = -FRESH_S

    def may_call(self, dependency: str, timeout_s: float) -> bool:
        """False while a fault point of the dependency is open, or tried by a step that waited.

        Raises `EngineUnavailable`, `SettingsError`.
        """
        with self._lock:
            if self._clock() - self._asked_s >= FRESH_S:
                found = self._engines.fault_points(timeout_s)
                self._away = frozenset(point.dependency for point in found if not point.lets_go)
                self._asked_s = self._clock()
            return dependency not in self._away
