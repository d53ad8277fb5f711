"""A service's own book of what it has done, one JSON line each, kept over a kill of the service.

The receiver's half of doing a thing once: a key that was applied is answered from the book, and an
attempt with a lower epoch than one already seen for the key is refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Entry(NamedTuple):
    """One effect as applied: at the receiver, under the attempt's epoch."""

    key: str
    epoch: int
    application: str
    answer: dict[str, object]


class LowerEpoch(Exception):  # noqa: N818 - it is an answer, not a fault of the receiver
    """The caller's attempt was superseded: `seen` is the epoch that came before it."""

    def __init__(self, key: str, epoch: int, seen: int) -> None:
        super().__init__(f"{key}: epoch {epoch} is below {seen}")
        self.seen = seen


class Ledger:
    """Append-only. `apply` is called for one key at a time (the server is single-threaded)."""

    def __init__(self, path: Path) -> None:
        self._applied: dict[str, Entry] = {}
        self._epochs: dict[str, int] = {}
        for entry in read(path):
            self._applied[entry.key] = entry
            self._epochs[entry.key] = entry.epoch
        self._file = path.open("ab", buffering=0)

    def known(self, key: str, epoch: int) -> Entry | None:
        """What was applied under `key`, if anything. Raises `LowerEpoch` for a late caller."""
        seen = self._epochs.get(key, 0)
        if epoch < seen:
            raise LowerEpoch(key, epoch, seen)
        self._epochs[key] = epoch
        return self._applied.get(key)

    def record(self, entry: Entry) -> None:
        """Write first, answer after: a kill between the two leaves the effect in the book."""
        self._file.write(json.dumps(entry._asdict()).encode() + b"\n")
        os.fdatasync(self._file.fileno())
        self._applied[entry.key] = entry


def read(path: Path) -> Iterator[Entry]:
    """Every whole line of a book; a line cut off by a kill was never answered and is left out."""
    if not path.exists():
        return
    for line in path.read_bytes().split(b"\n")[:-1]:
        yield Entry(**json.loads(line))
