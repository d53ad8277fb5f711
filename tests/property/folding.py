"""A log, the partition that folds it, and its changelog: what a crash can take and cannot."""

from __future__ import annotations

import msgspec

from dalsegno.schemas.control import ControlEvent
from dalsegno.schemas.events import RunEvent
from dalsegno.streams.core.actions import Output
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.record import Record, Unreadable

START_MS = 1_700_000_000_000
_encode = msgspec.msgpack.encode


def bytes_of(outputs: list[Output]) -> bytes:
    """All there is to outputs, as bytes."""
    return _encode([(o.sequence, type(o.action).__name__, o.action) for o in outputs])


class Folding:
    """A log that only grows, its live fold, and what captures have saved of it."""

    def __init__(self) -> None:
        self.log: list[Record] = []
        self.outputs: list[bytes] = []
        self.partition = Partition(3)
        self.at_ms = START_MS
        self.saved: dict[bytes, bytes] = {}

    def append(self, event: RunEvent | ControlEvent | Unreadable) -> list[Output]:
        """Appends the event at the present append time and applies it."""
        run_id = getattr(event, "run_id", "")
        offset = len(self.log)
        record = Record(offset, self.at_ms, run_id.encode(), b"value %d" % offset, event)
        self.log.append(record)
        outputs = self.partition.apply(record)
        self.outputs.append(bytes_of(outputs))
        return outputs

    def capture(self) -> None:
        """Saves what has changed."""
        for key, part in self.partition.capture():
            if part is None:
                self.saved.pop(key, None)
            else:
                self.saved[key] = part
        assert self.saved == self.partition.parts(), "captures do not add up to the state"

    def crash(self) -> None:
        """Loses the live state, restores what was saved and folds the log from there."""
        lost = self.partition.parts()
        self.partition = Partition.restore(3, list(self.saved.items()))
        for record in self.log[self.partition.position :]:
            outputs = self.partition.apply(record)
            assert bytes_of(outputs) == self.outputs[record.offset], "other outputs after a restore"
        assert self.partition.parts() == lost, "another state after a restore"

    def check_from_zero(self) -> None:
        """Folding the whole log anew gives the same outputs and the same state, byte for byte."""
        fresh = Partition(3)
        for record in self.log:
            assert bytes_of(fresh.apply(record)) == self.outputs[record.offset]
        assert fresh.parts() == self.partition.parts()
        assert fresh.digest() == self.partition.digest()
