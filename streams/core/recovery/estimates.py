"""How long a step usually takes: decayed medians per (flow, step), learned from what completed.

Integers only, so that every fold of a log has the same ones. A type's memory is constant: at most
`CLASSES` counts, which add up to at most `HALVE_ABOVE`. Durations fall into classes of three binary
digits, four an octave, so a median is right to one part in eight; an order needs no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from dalsegno.schemas.plan import StepPlan

# Durations of 2^34 ms (half a year) and above share the last class.
_BITS_MAX: Final = 34
CLASSES: Final = 4 * (_BITS_MAX - 1)
# All counts are halved above this many: the last hundred or so attempts decide.
HALVE_ABOVE: Final = 128
# Step types that a partition remembers: beyond it the one is forgotten that completed longest ago.
TYPES_MAX: Final = 4_096
# A median of fewer attempts is an accident of these.
SETTLED: Final = 16
# Of a step that has never completed: a limit is usually ten times what is usual.
_LIMIT_TO_USUAL: Final = 10

_encode = msgspec.msgpack.Encoder().encode


def class_of(took_ms: int) -> int:
    """The class of a duration."""
    if took_ms < 4:
        return max(0, took_ms)
    bits = took_ms.bit_length()
    if bits > _BITS_MAX:
        return CLASSES - 1
    return 4 * (bits - 2) + (took_ms >> bits - 3 & 3)


def middle_ms(number: int) -> int:
    """The middle of a class, the value that stands for it."""
    if number < 4:
        return number
    bits = number // 4 + 2
    step = 1 << bits - 3
    return (4 + number % 4) * step + step // 2


class Durations:
    """Durations of one step type, as counts by class. `used`: number of its last observation."""

    __slots__ = ("_counts", "_median_ms", "_total", "used")

    def __init__(self, counts: dict[int, int] | None = None, used: int = 0) -> None:
        self._counts = counts or {}
        self._total = sum(self._counts.values())
        self._median_ms = -1
        self.used = used

    def add(self, took_ms: int) -> None:
        """Counts a completed attempt."""
        number = class_of(took_ms)
        counts = self._counts
        counts[number] = counts.get(number, 0) + 1
        self._total += 1
        self._median_ms = -1
        if self._total > HALVE_ABOVE:
            self._counts = {k: half for k, count in counts.items() if (half := count >> 1)}
            self._total = sum(self._counts.values())

    @property
    def median_ms(self) -> int:
        """The lower median, at least 1."""
        if self._median_ms < 0:
            left = (self._total + 1) // 2
            for number in sorted(self._counts):
                left -= self._counts[number]
                if left <= 0:
                    self._median_ms = max(1, middle_ms(number))
                    break
        return self._median_ms

    @property
    def settled(self) -> bool:
        """Whether enough attempts have completed for the median to say what is usual."""
        return self._total >= SETTLED

    def pack(self) -> bytes:
        """When it was last used, and the counts in order of their classes."""
        return _encode((self.used, sorted(self._counts.items())))

    @classmethod
    def unpack(cls, data: bytes) -> Durations:
        """What `pack` wrote. Raises `msgspec.MsgspecError`."""
        used, pairs = _packed.decode(data)
        return cls(dict(pairs), used)


_packed = msgspec.msgpack.Decoder(tuple[int, list[tuple[int, int]]])


class Estimates:
    """The step types of a partition. Part of its state: one part each, by `flow/step`.

    The types stand in the order of their last observation, which their parts hold: a restored
    partition forgets the same one.
    """

    __slots__ = ("_dirty", "_types", "_used")

    def __init__(self) -> None:
        self._types: dict[str, Durations] = {}
        self._dirty: dict[str, None] = {}
        self._used = 0

    def observe(self, flow: str, step: str, took_ms: int) -> None:
        """An attempt completed, `took_ms` after it started."""
        name = f"{flow}/{step}"
        durations = self._types.pop(name, None)
        if durations is None:
            durations = Durations()
            if len(self._types) >= TYPES_MAX:
                oldest = next(iter(self._types))
                del self._types[oldest]
                self._dirty[oldest] = None
        self._types[name] = durations
        self._used += 1
        durations.used = self._used
        durations.add(took_ms)
        self._dirty[name] = None

    def learned_ms(self, flow: str, step: str) -> int | None:
        """The median of a type; None when no attempt of it has completed here."""
        durations = self._types.get(f"{flow}/{step}")
        return None if durations is None else durations.median_ms

    def settled_ms(self, flow: str, step: str) -> int:
        """The median of a type of which enough attempts have completed here, else 0."""
        durations = self._types.get(f"{flow}/{step}")
        return durations.median_ms if durations is not None and durations.settled else 0

    def usual_ms(self, flow: str, step: StepPlan) -> int:
        """What an attempt of the step takes, at least 1: learned, or a part of its limit."""
        learned = self.learned_ms(flow, step.name)
        if learned is None:
            return max(1, step.timeout_ms // _LIMIT_TO_USUAL)
        return learned

    def of(self, flow: str, steps: Sequence[StepPlan]) -> list[int]:
        """What each step of a plan takes, by its place."""
        return [self.usual_ms(flow, step) for step in steps]

    def take_dirty(self) -> list[tuple[str, bytes | None]]:
        """Types that changed since the last call, packed; None for those that are forgotten."""
        types, dirty = self._types, self._dirty
        self._dirty = {}
        return [(name, types[name].pack() if name in types else None) for name in dirty]

    def packed(self) -> list[tuple[str, bytes]]:
        """All types, packed, in order of their names."""
        return [(name, self._types[name].pack()) for name in sorted(self._types)]

    def load(self, packed: Iterable[tuple[str, bytes]]) -> None:
        """Takes packed types back. Raises `msgspec.MsgspecError`."""
        found = [(name, Durations.unpack(data)) for name, data in packed]
        found.sort(key=lambda each: each[1].used)
        self._types = dict(found)
        self._used = found[-1][1].used if found else 0
