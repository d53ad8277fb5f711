"""Small numbers that name the parts of a run, to note which of them have changed.

A tag is `kind << SHIFT | number`; the number of an effects page is `step << 16 | page`.
"""

from __future__ import annotations

from typing import Final

SHIFT: Final = 40
MASK: Final = (1 << SHIFT) - 1
PAGE, EFFECTS, SAVE, IDS, WAITING, CONTEXT = range(6)

ALL_WAITING: Final = WAITING << SHIFT
ALL_CONTEXT: Final = CONTEXT << SHIFT
