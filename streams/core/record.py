"""What the fold reads: one record of the events topic, as far as it could be understood."""

from __future__ import annotations

import msgspec

from dalsegno.schemas.control import ControlEvent
from dalsegno.schemas.events import RunEvent
from dalsegno.schemas.outputs import FaultReport


class Unreadable(msgspec.Struct, frozen=True, gc=False):
    """A record that is not a valid event here: it becomes a dead letter, and costs only itself.

    `reason` is a short code (`bad_frame`, `wrong_partition`, `bad_mac`, ...), `detail` a sentence.
    """

    reason: str
    detail: str
    run_id: str = ""
    kind: str = ""


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record of the log at `offset`, appended at `at_ms` (the broker's clock, Unix ms).

    `value` and `headers` are the original bytes, kept for waiting events and dead letters.
    """

    offset: int
    at_ms: int
    key: bytes
    value: bytes
    event: RunEvent | ControlEvent | FaultReport | Unreadable
    headers: tuple[tuple[str, bytes], ...] = ()
