"""A service's book of what it has done and taken back: one JSON line each, kept over a kill.

The receiver's half of a saga:

* A key that was done is answered from the book, never done again.
* A key that was taken back stays closed: of something never done nothing is taken back, and the act
  itself, should it come later, is refused.
* An attempt with a lower epoch than one already seen for the key is refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Entry(NamedTuple):
    """`what`: `do`, `undo`, or `close` for a key that was taken back before it was ever done.

    `key`: under which it was done. `undo_key`: under which that was taken back.
    """

    what: str
    key: str
    order: str
    units: int
    amount: int
    undo_key: str = ""


class Refused(Exception):  # noqa: N818 - it is an answer, not a fault of the receiver
    """The caller may not do this: its attempt was superseded, or the key is closed."""


class Ledger:
    """Append-only. Called for one key at a time."""

    def __init__(self, path: Path) -> None:
        self._done: dict[str, Entry] = {}
        self._undone: dict[str, Entry] = {}
        self._epochs: dict[str, int] = {}
        for entry in read(path):
            self._keep(entry)
        self._file = path.open("ab", buffering=0)

    def known(self, key: str, epoch: int) -> Entry | None:
        """What was done under `key`, if anything. Raises `Refused` for a late caller."""
        seen = self._epochs.get(key, 0)
        if epoch < seen:
            raise Refused(f"{key}: epoch {epoch} is below {seen}")
        self._epochs[key] = epoch
        if key in self._undone:
            raise Refused(f"{key} was taken back")
        return self._done.get(key)

    def undone(self, of: str) -> Entry | None:
        """How the act under `of` was taken back, if it was."""
        return self._undone.get(of)

    def record(self, entry: Entry) -> None:
        """Write first, answer after: a kill between the two leaves the effect in the book."""
        self._file.write(json.dumps(entry._asdict()).encode() + b"\n")
        os.fdatasync(self._file.fileno())
        self._keep(entry)

    def take_back(self, of: str, undo_key: str, order: str) -> Entry:
        """Takes back what was done under `of`, once, or closes the key."""
        before = self._undone.get(of)
        if before is not None:
            return before
        done = self._done.get(of)
        units, amount = (done.units, done.amount) if done is not None else (0, 0)
        entry = Entry("undo" if done else "close", of, order, units, amount, undo_key)
        self.record(entry)
        return entry

    def _keep(self, entry: Entry) -> None:
        if entry.what == "do":
            self._done[entry.key] = entry
        else:
            self._undone[entry.key] = entry


def read(path: Path) -> Iterator[Entry]:
    """Every whole line of a book; a line cut off by a kill was never answered and is left out."""
    if not path.exists():
        return
    for line in path.read_bytes().split(b"\n")[:-1]:
        yield Entry(**json.loads(line))
