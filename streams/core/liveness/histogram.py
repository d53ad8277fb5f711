"""A decayed histogram of durations in constant memory, read as its 99th percentile."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from math import isqrt

BUCKETS = 48
EDGES_MS = tuple(isqrt(1 << k) for k in range(1, BUCKETS + 1))
"""Upper edges, ratio sqrt(2): 1 ms to 4.7 h. What is longer counts in the last bucket."""

HALVE_ABOVE = 1_024
_QUANTILE_PERCENT = 99


class GapHistogram:
    """48 counts of 16 bits, halved whenever they add up to more than 1,024.

    The bucket of the percentile is kept up to date with each sample, so reading it costs nothing:
    `_index` is the first bucket at which the running sum `_sum` reaches 99 % of `_total`.
    """

    __slots__ = ("_counts", "_index", "_sum", "_total")

    def __init__(self) -> None:
        self._counts = array("H", bytes(2 * BUCKETS))
        self._total = 0
        self._index = 0
        self._sum = 0

    def __len__(self) -> int:
        return self._total

    def add(self, gap_ms: int) -> None:
        """Count a gap (ms, at least 0)."""
        bucket = bisect_left(EDGES_MS, gap_ms)
        if bucket >= BUCKETS:
            bucket = BUCKETS - 1
        self._counts[bucket] += 1
        self._total += 1
        if bucket <= self._index:
            self._sum += 1
        if self._total > HALVE_ABOVE:
            self._halve()
        elif bucket == self._index:
            return  # neither bound can be crossed
        self._settle()

    def quantile_ms(self) -> int | None:
        """Upper edge (ms) of the bucket of the 99th percentile; None while there is no sample."""
        return EDGES_MS[self._index] if self._total else None

    def _halve(self) -> None:
        self._counts = array("H", (count >> 1 for count in self._counts))
        self._total = sum(self._counts)
        self._sum = sum(self._counts[: self._index + 1])

    def _settle(self) -> None:
        counts, total = self._counts, self._total * _QUANTILE_PERCENT
        while self._sum * 100 < total:
            self._index += 1
            self._sum += counts[self._index]
        while self._index and (self._sum - counts[self._index]) * 100 >= total:
            self._sum -= counts[self._index]
            self._index -= 1
