"""What the fold reads: one record of the events topic, as far as it could be understood."""

from __future__ import annotations

import msgspec

from dalsegno.schemas.control import ControlEvent
from dalsegno.schemas.events import RunEvent
from dalsegno.schemas.outputs import FaultReport, Outcome


class Unreadable(msgspec.Struct, frozen=True, gc=False):
    """A record that is not a valid event here: it becomes a dead letter, and costs only itself.

    `reason` is a short code (`bad_frame`, `wrong_partition`, `bad_mac`, ...), `detail` a sentence.
    """

    reason: str
    detail: str
    run_id: str = ""
    kind: str = ""


class Blank(msgspec.Struct, frozen=True, gc=False):
    """What an archive kept of an event of an erased run: its kind, and the outcome that it had.

    `digest`: of the run's id, if it came after the erasure. `tombstone`: of the request itself.
    """

    kind: str
    outcome: Outcome
    digest: bytes = b""
    tombstone: bytes = b""


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record of the log at `offset`, appended at `at_ms` (the broker's clock, Unix ms).

    `value` and `headers` are the original bytes, kept for waiting events and dead letters.
    """

    offset: int
    at_ms: int
    key: bytes
    value: bytes
    event: RunEvent | ControlEvent | FaultReport | Unreadable | Blank
    headers: tuple[tuple[str, bytes], ...] = ()
