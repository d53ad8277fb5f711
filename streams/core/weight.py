"""How much memory a run takes, in bytes: estimated, calibrated against what Python allocates."""

from __future__ import annotations

from typing import Final

from dalsegno.streams.core.cold import Cold
from dalsegno.streams.core.runstate import IDLE, Run, Stub
from dalsegno.streams.core.warm import PackedRun

# Measured by `tests/unit/storage/test_weight.py`, which fails when they are out by half.
_RUN: Final = 1_500
_STEP: Final = 8
_TOUCHED: Final = 220
_EFFECT: Final = 500
_ID: Final = 120
_WAITING: Final = 600
_PACKED: Final = 350
_COLD: Final = 1_400
_PART: Final = 130


def weight_of(held: Run | Stub | Cold | PackedRun) -> int:
    """Bytes, more or less."""
    if isinstance(held, PackedRun):
        parts = sum(len(key) + len(value) + _PART for key, value in held.parts)
        return _PACKED + len(held.header) + parts
    waiting = _WAITING * len(held.waiting or ())
    if isinstance(held, Cold):
        return _COLD + waiting
    if isinstance(held, Stub):
        return _PACKED + len(held.head.context) + waiting
    head = held.head
    saves = sum(map(len, (held.saves or {}).values()))
    return (
        _RUN
        + _STEP * len(held.rows)
        + _TOUCHED * (len(held.rows) - head.tally[IDLE])
        + 2 * held.context.size_bytes
        + _EFFECT * head.effects
        + _ID * len(held.seen or ())
        + saves
        + waiting
    )
