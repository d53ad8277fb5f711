"""Where in the log a client's own events about a run are, so that it reads what it has written."""

from __future__ import annotations

import threading
from collections import OrderedDict


class LastOffsets:
    """Thread-safe. Of the last `most` keys; of others it says -1, as if nothing was written."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._offsets: OrderedDict[bytes, int] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, key: bytes, offset: int) -> None:
        """A record of this key was acknowledged."""
        with self._lock:
            self._offsets[key] = max(offset, self._offsets.pop(key, -1))
            if len(self._offsets) > self._most:
                self._offsets.popitem(last=False)

    def of(self, key: bytes) -> int:
        """The offset of the last one, -1 if there was none."""
        with self._lock:
            return self._offsets.get(key, -1)
