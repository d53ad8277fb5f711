"""SIGTERM and SIGINT: checkpoint and stop, within a bound that nothing inside the process can
break.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import threading
from types import FrameType
from typing import Final

_FORCED: Final = 1
_GRACE_S: Final = 1.0


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

    def install(self) -> None:
        """Take the signals over. Main thread only."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def arm(self) -> None:
        """From now on the process ends within the bound, whatever happens."""
        if self._bound is None:
            self._bound = threading.Timer(self._timeout_s, self._force)
            self._bound.daemon = True
            self._bound.start()
            # For when something holds the interpreter, as a write does to a disk that hangs.
            faulthandler.dump_traceback_later(self._timeout_s + _GRACE_S, exit=True, file=2)

    def _force(self) -> None:
        """No log and no lock: whatever holds the process up may hold these too."""
        said = f"not stopped within {self._timeout_s:g} s: ended by force, from the last checkpoint"
        os.write(2, f"{said} the next owner goes on\n".encode())
        faulthandler.dump_traceback(2)
        os._exit(_FORCED)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.arm()
        self._loop.call_soon_threadsafe(self.requested.set)
