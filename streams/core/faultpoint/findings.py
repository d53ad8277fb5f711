"""What a unit of the fold found out about dependencies."""

from __future__ import annotations

import msgspec


class Finding(msgspec.Struct, frozen=True, gc=False):
    """What an attempt that ended says about the dependencies of its step. `dependency`: the one
    that it names. `offset`: of the event by which it was given out, -1 for a service's own.
    """

    place: int
    good: bool
    span_ms: int = 0
    offset: int = -1
    dependency: str = ""
    error_class: str = ""
    retry_after_ms: int = 0
