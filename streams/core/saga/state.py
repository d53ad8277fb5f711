"""What the fold remembers of a saga, beside the states of its steps."""

from __future__ import annotations

import msgspec


class Saga(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The run is being taken back. `cause`: a short code. `detail`: who or what said so."""

    cause: str
    detail: str
    began_ms: int


class Undoes(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Of a compensation: the place of the step that it takes back, and how much was known of what
    it takes back when it was last given out. Of a step that a person took back by hand: how much
    was known then (`step` is its own place).

    Known grows with each intent and each confirmation, so that more is known when it is higher.
    """

    step: int
    known: int = 0
