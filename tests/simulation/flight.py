"""One dispatched epoch of a step, as the account of its run keeps it."""

from __future__ import annotations

from dalsegno.schemas.outputs import Handoff


class Flight:
    """One dispatched epoch of a step. `over`: what ended it. `given_back`: not a timer."""

    def __init__(self, handoff: Handoff, live_ms: int) -> None:
        self.handoff = handoff
        self.dispatched_live_ms = live_ms
        self.started_live_ms: int | None = None
        self.reported_at = -1
        self.given_back = False
        self.over = ""
