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
# Step types that a partition learns. Flows whose step names never repeat teach nothing anyway.
TYPES_MAX: Final = 4_096
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
    """Durations of one step type, as counts by class."""

    __slots__ = ("_counts", "_median_ms", "_total")

    def __init__(self, counts: dict[int, int] | None = None) -> None:
        self._counts = counts or {}
        self._total = sum(self._counts.values())
        self._median_ms = -1

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

    def pack(self) -> bytes:
        """The counts, in order of their classes."""
        return _encode(sorted(self._counts.items()))

    @classmethod
    def unpack(cls, data: bytes) -> Durations:
        """What `pack` wrote. Raises `msgspec.MsgspecError`."""
        return cls(dict(_pairs.decode(data)))


_pairs = msgspec.msgpack.Decoder(list[tuple[int, int]])


class Estimates:
    """The step types of a partition. Part of its state: one part each, by `flow/step`."""

    __slots__ = ("_dirty", "_types")

    def __init__(self) -> None:
        self._types: dict[str, Durations] = {}
        self._dirty: dict[str, None] = {}

    def observe(self, flow: str, step: str, took_ms: int) -> None:
        """An attempt completed, `took_ms` after it started. New types are learned up to a bound."""
        name = f"{flow}/{step}"
        durations = self._types.get(name)
        if durations is None:
            if len(self._types) >= TYPES_MAX:
                return
            durations = self._types[name] = Durations()
        durations.add(took_ms)
        self._dirty[name] = None

    def learned_ms(self, flow: str, step: str) -> int | None:
        """The median of a type; None when no attempt of it has completed here."""
        durations = self._types.get(f"{flow}/{step}")
        return None if durations is None else durations.median_ms

    def usual_ms(self, flow: str, step: StepPlan) -> int:
        """What an attempt of the step takes, at least 1: learned, or a part of its limit."""
        learned = self.learned_ms(flow, step.name)
        if learned is None:
            return max(1, step.timeout_ms // _LIMIT_TO_USUAL)
        return learned

    def of(self, flow: str, steps: Sequence[StepPlan]) -> list[int]:
        """What each step of a plan takes, by its place."""
        return [self.usual_ms(flow, step) for step in steps]

    def take_dirty(self) -> list[tuple[str, bytes]]:
        """Types that changed since the last call, packed."""
        dirty = [(name, self._types[name].pack()) for name in self._dirty]
        self._dirty = {}
        return dirty

    def packed(self) -> list[tuple[str, bytes]]:
        """All types, packed, in order of their names."""
        return [(name, self._types[name].pack()) for name in sorted(self._types)]

    def load(self, packed: Iterable[tuple[str, bytes]]) -> None:
        """Takes packed types back. Raises `msgspec.MsgspecError`."""
        for name, data in packed:
            self._types[name] = Durations.unpack(data)
