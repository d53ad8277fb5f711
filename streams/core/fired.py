"""What a unit without an event did."""

from __future__ import annotations

import msgspec


class Fired(msgspec.Struct, frozen=True, gc=False):
    """Which timer fired. An empty name: the deadline was only put off."""

    name: str
    step: str = ""
    epoch: int = 0
