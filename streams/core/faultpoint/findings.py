"""What a unit of the fold has against dependencies."""

from __future__ import annotations

import msgspec


class Finding(msgspec.Struct, frozen=True, gc=False):
    """An attempt failed by a dependency of its step. `dependency`: the one that it names. `offset`:
    of the event by which it was given out, -1 for a service's own. `began_ms`: log time of its
    start, 0 if that is not known.
    """

    place: int
    offset: int = -1
    began_ms: int = 0
    dependency: str = ""
    error_class: str = ""
    retry_after_ms: int = 0
