"""When the next attempt of a step may start: policies that answer with a delay, or none.

The jitter comes from a hash of run, step and epoch, so that every fold of the log agrees on it and
runs that failed together come back apart. It lies in the upper half of the ceiling: then a delay is
never 0 by chance. Where a draw is less than the one before, the fold keeps that one: a delay never
shrinks before a success.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from dalsegno.schemas.control import Policy
from dalsegno.schemas.plan import RetryPolicy

# Beyond this many steps of growth even a factor of 101 % has grown more than 20,000-fold.
_GROWTH_STEPS_MAX: Final = 1_000
_REDISPATCH_FACTOR_PERCENT: Final = 200
_DECLARED_NONE: Final = RetryPolicy()


def retry_of(policy: Policy, declared: RetryPolicy) -> RetryPolicy:
    """By what a step is tried again: what it declares, else the policy's `retry_default`.

    A step that declares nothing carries the built-in values, and so does one that declares these.
    """
    return policy.retry_default if declared == _DECLARED_NONE else declared


def ceiling_ms(policy: RetryPolicy, failures: int) -> int:
    """The largest delay after `failures` (1 or more) of them: grows with each, up to `max_ms`."""
    growth = min(max(failures, 1) - 1, _GROWTH_STEPS_MAX)
    # Integers have no upper bound here; a float would round differently from machine to machine.
    numerator, denominator = int(policy.factor_percent**growth), int(100**growth)
    grown = policy.initial_ms * numerator // denominator
    return max(0, min(policy.max_ms, grown))


def delay_ms(policy: RetryPolicy, run_id: str, step: str, epoch: int, failures: int) -> int:
    """Milliseconds from a failure to the next attempt: between half the ceiling and the ceiling.

    `failures` counts what went wrong since the step last succeeded, of whatever type, this one
    included. 0 only when `initial_ms` or `max_ms` is 0.
    """
    return _jitter(ceiling_ms(policy, failures), run_id, step, epoch)


def redispatch_ms(policy: Policy, run_id: str, step: str, epoch: int, expiries: int) -> int:
    """Milliseconds from an epoch that nobody started, or that was given back, to the next one.

    `expiries` counts such epochs in a row, this one included. Costs no attempt.
    """
    growth = RetryPolicy(
        initial_ms=policy.redispatch_initial_ms,
        max_ms=policy.redispatch_max_ms,
        factor_percent=_REDISPATCH_FACTOR_PERCENT,
    )
    return _jitter(ceiling_ms(growth, expiries), run_id, step, epoch)


def _jitter(ceiling: int, run_id: str, step: str, epoch: int) -> int:
    if ceiling <= 0:
        return 0
    text = f"{len(run_id)}:{run_id}/{step}/{epoch}".encode()
    draw = int.from_bytes(blake2b(text, digest_size=8).digest(), "big")
    low = (ceiling + 1) // 2
    return low + draw % (ceiling - low + 1)
