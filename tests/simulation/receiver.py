"""What effects act on: a service that honours idempotency keys and refuses lower epochs."""

from __future__ import annotations

import msgspec


class Call(msgspec.Struct, frozen=True, gc=False):
    """One act at the receiver. `source_offset` is the offset of the event behind the handoff."""

    run_id: str
    step: str
    effect: str
    occurrence: int
    key: str
    epoch: int
    source_offset: int
    at_ms: int
    result: str


class Receiver:
    """`calls` are raw acts; `applied` has one result per key."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.applied: dict[str, str] = {}
        self.epochs: dict[tuple[str, str], int] = {}
        self.refused = 0

    def act(self, call: Call) -> str | None:
        """The result, the earlier one for a known key, or None for an epoch below one seen."""
        place = (call.run_id, call.step)
        if call.epoch < self.epochs.get(place, 0):
            self.refused += 1
            return None
        self.epochs[place] = call.epoch
        self.calls.append(call)
        return self.applied.setdefault(call.key, call.result)

    def look_up(self, key: str) -> str | None:
        """What a `check` asks: the result if the key was applied."""
        return self.applied.get(key)
