"""How long an open breaker stays open: grows with each opening, never shrinks before a success."""

from __future__ import annotations

from hashlib import blake2b

from dalsegno.streams.core.faultpoint.settings import PointSettings


def open_for_ms(point: str, openings: int, last_ms: int, s: PointSettings) -> int:
    """Milliseconds for the `openings`th time in a row (1 or more) that the breaker opens.

    The jitter is a hash of name and number, so that every fold agrees and fault points that fell
    over together are probed apart. `last_ms`: how long it was the time before, or what the
    dependency asked for, whichever is more (0: a success came in between); it is no shorter now.
    """
    grown = min(s.open_max_ms, s.open_first_ms << min(max(openings, 1) - 1, 20))
    spread = grown * s.jitter_percent // 100
    draw = int.from_bytes(blake2b(f"{point}/{openings}".encode(), digest_size=8).digest(), "big")
    jittered = max(1, grown - spread + draw % (2 * spread + 1))
    return max(jittered, last_ms)
