"""What the monitor needs to know of an attempt in flight."""

from __future__ import annotations

import msgspec

from dalsegno.streams.core.sequence import Sequence


class Attempt(msgspec.Struct, frozen=True, gc=False):
    """An attempt that was dispatched, or is running. The fold makes one for nearly every event, by
    position.

    `running` is false from the dispatch until the step has started; `worker` and `incarnation` are
    empty until then. `sequence` is that of its handoff (None where a service runs the step).
    `step_type` is `flow/step`: what thresholds are learned by. Times are append times, Unix ms.
    """

    run_id: str
    step: str
    epoch: int
    step_type: str
    running: bool
    queue: str
    since_ms: int
    heartbeat_ms: int
    timeout_ms: int
    sequence: Sequence | None = None
    start_by_ms: int = 0
    worker: str = ""
    incarnation: int = 0
