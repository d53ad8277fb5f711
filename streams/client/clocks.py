"""The SDK's clocks, in one place so that tests can move them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


def _lease_s() -> float:
    """Seconds that only grow, the time of a suspended machine included where the system can
    tell.
    """
    return time.clock_gettime(_CLOCK)


_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Clocks:
    """`lease_s`: monotonic seconds, for leases and waits. `wall_ms`: Unix ms, information only."""

    lease_s: Callable[[], float] = _lease_s
    wall_ms: Callable[[], int] = _wall_ms
