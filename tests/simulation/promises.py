"""How a world says that a promise of the design was broken."""

from __future__ import annotations


class BrokenPromiseError(AssertionError):
    """A promise of the design was broken; the text says which and where."""


class FoldRaisedError(BrokenPromiseError):
    """The fold raised on something else than the simulation's poison: a bug whatever follows."""
