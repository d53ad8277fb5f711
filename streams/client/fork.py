"""What a fork does to a Kafka client: its threads are gone, its locks are as they were.

Every use in the child is refused with a clear error, and the child never frees the client: freeing
would wait for threads that do not exist.
"""

from __future__ import annotations

import ctypes
import os
import weakref

from dalsegno.streams.client.errors import ForkedError


class ForkGuard:
    """Remembers the process that made `handles` (librdkafka clients)."""

    def __init__(self, *handles: object) -> None:
        self._pid = os.getpid()
        self._handles = handles
        kept = weakref.WeakMethod(self._leak)

        def in_child() -> None:
            leak = kept()
            if leak is not None:
                leak()

        os.register_at_fork(after_in_child=in_child)

    @property
    def forked(self) -> bool:
        """Whether this is another process than the one that made the handles."""
        return os.getpid() != self._pid

    def check(self) -> None:
        """Raises `ForkedError` in a child."""
        if self.forked:
            raise ForkedError(self._pid, os.getpid())

    def replace(self, *handles: object) -> None:
        """Guard other handles from now on."""
        self._handles = handles

    def _leak(self) -> None:
        for handle in self._handles:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle))
