"""When the next attempt of a step may start: policies that answer with a delay, or none.

The jitter comes from a hash of run, step and epoch, so that every fold of the log agrees on it and
runs that failed together come back apart. It lies in the upper half of the ceiling: then a delay is
never 0 by chance, and with a factor of 2 or more it never shrinks from one failure to the next
until the ceiling stands.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import msgspec

from dalsegno.schemas.control import Policy
from dalsegno.schemas.plan import RetryPolicy

# Beyond this many steps of growth even a factor of 101 % has grown more than 20,000-fold.
_GROWTH_STEPS_MAX: Final = 1_000
_REDISPATCH_FACTOR_PERCENT: Final = 200


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


class Budget(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a step has used of its two budgets: they never use up each other.

    `app_failures`: attempts that started and failed by the step's own word.
    `infra_failures`: attempts lost to timeouts, workers and dependencies.
    """

    app_failures: int = 0
    infra_failures: int = 0

    def failed(self, *, infra: bool) -> Budget:
        """The budget after one more failure."""
        if infra:
            return Budget(app_failures=self.app_failures, infra_failures=self.infra_failures + 1)
        return Budget(app_failures=self.app_failures + 1, infra_failures=self.infra_failures)

    def next_delay_ms(
        self,
        retry: RetryPolicy,
        policy: Policy,
        *,
        run_id: str,
        step: str,
        epoch: int,
        retry_after_ms: int | None = None,
    ) -> int | None:
        """Milliseconds to the next attempt, or None when a budget is used up.

        Grows over failures of both kinds: a different error does not start it again.
        `retry_after_ms` is what the dependency asked for: it can only lengthen the delay, to at
        most the policy's `retry_after_max_ms`.
        """
        if (
            self.app_failures >= retry.max_attempts
            or self.infra_failures >= retry.max_infra_attempts
        ):
            return None
        delay = delay_ms(retry, run_id, step, epoch, self.app_failures + self.infra_failures)
        if retry_after_ms is None:
            return delay
        return max(delay, min(retry_after_ms, policy.retry_after_max_ms))
