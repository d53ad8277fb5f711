"""A dependency that becomes slow and never fails: seen by each partition, from its own attempts.

An attempt is slow when it took more than twice as long as its step usually does, and `SLOW_MS_MIN`
more than that. A streak of slow attempts without any other in between says that the dependency is,
not the work: of work that varies, a quarter is as long by itself, and `STREAK` in a row of such are
one in ten million. `AFTER` of them began after the first had ended: whatever held up all that was
out at one moment, a broker or a pool of workers that stood still, is over by then.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dalsegno.streams.core.faultpoint.view import SPANS_MAX, Span

SLOW_MS_MIN: Final = 200
_TIMES_USUAL: Final = 2
STREAK: Final = 12
AFTER: Final = 4
# Step types whose usual span a streak keeps; others count by what is known of them at that time.
_TYPES_MAX: Final = 64


class Streak(msgspec.Struct, array_like=True, kw_only=True, gc=False):
    """Slow attempts in a row on one dependency. `began_ms`: log time at which the first ended.

    `usual_ms`: of their step types, as it was when the streak met them: what is slow for long is
    learned as usual, and must not hide itself while it is.
    """

    count: int = 0
    after: int = 0
    began_ms: int = 0
    usual_ms: dict[str, int] = {}

    @property
    def tells(self) -> bool:
        """Whether it is long enough to be reported."""
        return self.count >= STREAK and self.after >= AFTER

    def kept_ms(self, kind: str, usual_ms: int) -> int:
        """The usual span of a step type as of its first attempt in the streak."""
        return self.usual_ms.get(kind, usual_ms)

    def add(self, kind: str, span_ms: int, usual_ms: int, now_ms: int) -> None:
        """One more slow attempt has ended."""
        self.began_ms = self.began_ms or now_ms
        self.count += 1
        self.after += now_ms - span_ms >= self.began_ms
        if kind not in self.usual_ms and len(self.usual_ms) < _TYPES_MAX:
            self.usual_ms = {**self.usual_ms, kind: usual_ms}


def is_slow(span_ms: int, usual_ms: int) -> bool:
    """`usual_ms` 0: nothing is known, and nothing is slow."""
    return usual_ms > 0 and span_ms > _TIMES_USUAL * usual_ms + SLOW_MS_MIN


class Streaks:
    """The streaks of a partition, by dependency. False while none is slow."""

    __slots__ = ("_by_name",)

    def __init__(self) -> None:
        self._by_name: dict[str, Streak] = {}

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self._by_name)

    def ended(self, name: str, kind: str, span_ms: int, usual_ms: int, now_ms: int) -> int | None:
        """An attempt of a step type has ended well. None: it was not slow. Else how long the streak
        is that is to be told, 0 for none yet. What was told begins anew.
        """
        streak = self._by_name.get(name)
        if streak is not None:
            usual_ms = streak.kept_ms(kind, usual_ms)
        if not is_slow(span_ms, usual_ms):
            self._by_name.pop(name, None)
            return None
        if streak is None:
            make_room(self._by_name)
            streak = self._by_name[name] = Streak()
        streak.add(kind, span_ms, usual_ms, now_ms)
        if not streak.tells:
            return 0
        del self._by_name[name]
        return streak.count

    def end(self, name: str) -> None:
        """Its steps need permits from here on."""
        self._by_name.pop(name, None)

    def pack(self) -> list[tuple[str, Streak]]:
        """What a checkpoint keeps."""
        return list(self._by_name.items())

    def load(self, streaks: list[tuple[str, Streak]]) -> None:
        """What `pack` gave."""
        self._by_name = dict(streaks)


def make_room(known: dict[str, Streak] | dict[str, Span]) -> None:
    """Forgets what stands first, where there is room for no more."""
    if len(known) >= SPANS_MAX:
        del known[next(iter(known))]
