"""The numbers by which a fault point is steered. All integers; times in milliseconds."""

from __future__ import annotations

import msgspec


class PointSettings(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Measured in the storm benchmark; a dependency's declaration may lower `window_max`.

    `failures_to_open` in a row open the breaker, for `open_first_ms` at first, twice as long each
    time up to `open_max_ms`, give or take `jitter_percent`. `lease_ms`: how long a permit, and a
    probe, is good for. A window shrinks to `cut_percent` of itself on a failure, or when the
    smoothed span exceeds `slow_percent` of the least. `calm_ms`: for so long all demand must have
    been met before the limit is lifted. A log that stood still for `still_ms` means that the
    service did: windows begin small. `retry_after_max_ms` bounds what a dependency may ask for.
    """

    failures_to_open: int = 5
    open_first_ms: int = 1_000
    open_max_ms: int = 5_000
    jitter_percent: int = 20
    lease_ms: int = 10_000
    probe_max_ms: int = 60_000
    cut_percent: int = 70
    slow_percent: int = 200
    busy_percent: int = 80
    calm_ms: int = 3_000
    still_ms: int = 5_000
    silent_ms: int = 20_000
    retry_after_max_ms: int = 60_000
    window_max: int = 10_000
    health_fresh_ms: int = 5_000


DEFAULTS = PointSettings()
