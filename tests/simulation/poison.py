"""Events on which our own code raises: what they cost is their own run, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

from dalsegno.streams.core import lifecycle

POISON: Final = "poison"
_right = lifecycle.raise_flags


def _raise_flags(draft: Any, flags: tuple[str, ...]) -> None:
    if POISON in flags:
        raise ValueError("the simulation's poison")
    _right(draft, flags)


@contextmanager
def poisoned() -> Iterator[None]:
    """While entered, a risk flag of this name makes the fold raise."""
    with patch.object(lifecycle, "raise_flags", _raise_flags):
        yield
