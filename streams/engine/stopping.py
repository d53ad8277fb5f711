"""SIGTERM and SIGINT: checkpoint and stop, within a bound that nothing inside the process can
break.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import threading
import time
from collections.abc import Coroutine
from types import FrameType
from typing import Any, Final, TypeVar

import structlog

log = structlog.get_logger(__name__)

T = TypeVar("T")

_FORCED: Final = 1
_GRACE_S: Final = 1.0
_GIVE_UP_S: Final = 2.0
"""For what was given up to end by itself, such as a client that disconnects."""


class StopAskedError(Exception):
    """A stop was asked for before something was through. Nothing is wrong."""


async def unless(asked: asyncio.Event, work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns or raises. Raises `StopAskedError`, with the work given up, if a stop is
    asked for meanwhile.
    """
    working, waiting = asyncio.create_task(work), asyncio.create_task(asked.wait())
    try:
        await asyncio.wait((working, waiting), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise StopAskedError
    finally:
        waiting.cancel()
        if working.cancel():
            _, left = await asyncio.wait([working], timeout=_GIVE_UP_S)
            if left:
                log.warning("what was given up for the stop has not ended, and is left")


class StopSignals:
    """`requested` is set at the first signal. From then on the process ends within `timeout_s`.

    The handlers are Python's own, not the loop's: a batch that never ends keeps the loop from
    running, while Python's still run between two of its instructions.
    """

    def __init__(self, timeout_s: float) -> None:
        self.requested = asyncio.Event()
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._bound: threading.Timer | None = None
        self._ends_s = 0.0

    def install(self) -> None:
        """Take the signals over. Main thread only."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def arm(self) -> None:
        """From now on the process ends within the bound, whatever happens."""
        if self._bound is None:
            self._ends_s = time.monotonic() + self._timeout_s
            self._bound = threading.Timer(self._timeout_s, self._force)
            self._bound.daemon = True
            self._bound.start()
            # For when something holds the interpreter, as a write does to a disk that hangs.
            faulthandler.dump_traceback_later(self._timeout_s + _GRACE_S, exit=True, file=2)

    def left_s(self) -> float:
        """Until the process ends by force; the whole bound while nothing is armed."""
        if self._bound is None:
            return self._timeout_s
        return max(0.0, self._ends_s - time.monotonic())

    def _force(self) -> None:
        """No log and no lock: whatever holds the process up may hold these too."""
        said = f"not stopped within {self._timeout_s:g} s: ended by force, from the last checkpoint"
        os.write(2, f"{said} the next owner goes on\n".encode())
        faulthandler.dump_traceback(2)
        os._exit(_FORCED)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.arm()
        self._loop.call_soon_threadsafe(self.requested.set)
