"""Bounds of the monitor. Times are on the partition clock unless the name says otherwise."""

from __future__ import annotations

import msgspec

CANARY_INTERVAL_MS = 250
DEFAULT_HEARTBEAT_MS = 1_000
"""What a step that declares no heartbeat interval is watched by: nothing runs unmonitored."""


class LivenessSettings(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a monitor goes by.

    `clock_cap_ms`: most that one record moves the clock; twice the canary's interval. `repeat_ms`:
    a verdict whose attempt is still in flight is said again after this, then after twice as long
    and so on up to `repeat_ms_max`: its append may have failed. `verdicts_per_s`: bound on verdicts
    that rest on silence, so that a monitor which comes back after a long outage does not start one
    itself. Verdicts from a hello or a mark are not held back. `lease_ms`: worker lease; a hello
    from another host takes effect only after it. `start_margin_ms`: how long after `start_by` a
    handoff that was taken counts as lost; the fold's policy has the same margin, for append times
    that go back at a change of leader. `mark_age_ms`: marks of a queue are wanted once a handoff
    has waited for so long.
    """

    clock_cap_ms: int = 2 * CANARY_INTERVAL_MS
    repeat_ms: int = 5_000
    repeat_ms_max: int = 3_600_000
    verdicts_per_s: int = 100
    lease_ms: int = 8_000
    start_margin_ms: int = 2_000
    mark_age_ms: int = 2_000
    kinds_max: int = 4_096
    workers_max: int = 16_384
