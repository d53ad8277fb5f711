"""How many recovery attempts a partition has out at a time: small at first, doubling each second.

A worker pool that dies under ten thousand runs damages them all within seconds; no fault point
need be concerned. Further attempts then go out in recovery order behind a width that begins small
and grows while nothing speaks against it. After a time without any, the next failure begins anew.
"""

from __future__ import annotations

from typing import Final

import msgspec

# Width of the first second of an episode: a failure here and there never waits.
WIDTH_FIRST: Final = 64
# Without a recovery attempt for so long, an episode is over.
QUIET_MS: Final = 30_000
BEAT_MS: Final = 1_000
_DOUBLINGS_MAX: Final = 40
_NEVER: Final = 1 << 62


class Pace(msgspec.Struct, array_like=True, gc=False):
    """`in_flight`: recovery attempts dispatched or running. `first_ms`, `last_ms`: log times of the
    first and last one that went out in this episode.
    """

    in_flight: int = 0
    first_ms: int = 0
    last_ms: int = -QUIET_MS - 1

    def width(self, now_ms: int, most: int) -> int:
        """How many may be out at log time `now_ms`; `most` is the policy's bound (0: none)."""
        beats = 0 if self._over(now_ms) else (now_ms - self.first_ms) // BEAT_MS
        grown = WIDTH_FIRST << min(beats, _DOUBLINGS_MAX)
        return min(grown, most) if most else grown

    def went(self, now_ms: int) -> None:
        """A recovery attempt went out."""
        if self._over(now_ms):
            self.first_ms = now_ms
        self.last_ms = now_ms

    def next_ms(self, now_ms: int, most: int) -> int:
        """When the width grows next; for as long as something waits for it."""
        if self._over(now_ms) or (most and self.width(now_ms, most) >= most):
            return _NEVER
        return self.first_ms + ((now_ms - self.first_ms) // BEAT_MS + 1) * BEAT_MS

    def _over(self, now_ms: int) -> bool:
        # Not while any is out: a long attempt is no silence.
        return self.in_flight == 0 and now_ms - self.last_ms > QUIET_MS
