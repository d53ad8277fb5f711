"""How often a run is brought back before it is put to a person.

Budgets of a step are its plan's, one for faults of the application and one for those of the
infrastructure; these bound the run as a whole, so that one that fails a little everywhere does not
go round for ever.
"""

from __future__ import annotations

from dalsegno.streams.core.draft import Draft

RUN = "recoveries_exhausted"
WINDOW = "recoveries_too_frequent"


def count_recovery(draft: Draft) -> str:
    """Counts one more recovery of the run. Returns which limit is passed by it, or an empty text.

    Windows do not slide: one begins with the first recovery after the one before is over.
    """
    head, policy, log_ms = draft.head, draft.now.policy, draft.now.log_ms
    head.recoveries += 1
    if log_ms - head.window_ms >= policy.recovery_window_ms or not head.window_count:
        head.window_ms, head.window_count = log_ms, 0
    head.window_count += 1
    if head.recoveries > policy.run_recoveries_max:
        return RUN
    return WINDOW if head.window_count > policy.window_recoveries_max else ""


def told(draft: Draft, reason: str) -> str:
    """What a person is told about a passed limit."""
    head, policy = draft.head, draft.now.policy
    if reason == RUN:
        return f"brought back {head.recoveries} times, {policy.run_recoveries_max} are allowed"
    passed = draft.now.log_ms - head.window_ms
    return f"brought back {head.window_count} times within {passed} ms"
