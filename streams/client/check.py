"""The list to go through before production: what `dalsegno check MODULE:FLOW` prints.

What the service would refuse comes from the same code that refuses it there; the rest is advice
that no service can give, because it needs the program's own text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from dalsegno.schemas.control import Policy
from dalsegno.schemas.plan import Plan, RetryPolicy, Risk, StepPlan, StepRole
from dalsegno.streams.client.check_undo import clean_up, effect_calls
from dalsegno.streams.client.finding import Finding, Severity
from dalsegno.streams.core.plan import PlanRefused, compile_plan
from dalsegno.streams.core.retry import ceiling_ms

if TYPE_CHECKING:
    from dalsegno.streams.client.step import Step


__all__ = ["Finding", "Severity", "findings"]

_SECRET: Final = re.compile(
    r"(^|_)(password|passwd|secret|token|api_?key|credential|private_?key|ssn|iban|card_?number|cvv|pin)($|_|s$)",
    re.IGNORECASE,
)


def findings(plan: Plan, steps: Sequence[Step], ttl_ms: int, flow: str) -> list[Finding]:
    """Every finding, errors first, then in the order of the plan."""
    found = [
        *_refusals(plan, ttl_ms, flow),
        *_declarations(steps),
        *_ttl(plan, ttl_ms),
        *_risks(plan),
        *_secrets(plan),
        *clean_up(plan, steps),
    ]
    for step in steps:
        found.extend(_effects(step))
    return sorted(found, key=lambda finding: -finding.severity)


def _refusals(plan: Plan, ttl_ms: int, flow: str) -> Iterator[Finding]:
    queues = tuple(sorted({step.queue for step in plan.steps if step.queue} | {"default"}))
    try:
        compile_plan(plan, policy=Policy(queues=queues), ttl_ms=ttl_ms)
    except PlanRefused as refused:
        step = refused.path[0] if refused.path else ""
        yield Finding(Severity.ERROR, refused.code, step, f"{flow}: {refused.detail}")


def _declarations(steps: Sequence[Step]) -> Iterator[Finding]:
    for step in steps:
        if not step.declared:
            yield Finding(
                Severity.ERROR,
                "undeclared",
                step.name,
                "declare reads and writes, as empty lists if there are none: what is not "
                "declared cannot be kept",
            )


def _ttl(plan: Plan, ttl_ms: int) -> Iterator[Finding]:
    """The longest path with every attempt that the plan allows, against the TTL: those that its
    own failures cost, and those that infrastructure may cost besides.
    """
    by_itself = _longest_ms(plan, _own_attempts)
    with_faults = _longest_ms(plan, _all_attempts)
    if by_itself is not None and by_itself > ttl_ms:
        yield Finding(
            Severity.WARNING,
            "ttl_short_with_retries",
            "",
            f"with all retries the longest path takes {by_itself / 1000:g} s and the ttl is "
            f"{ttl_ms / 1000:g} s: "
            "raise the ttl, or lower timeouts or max_attempts",
        )
    elif with_faults is not None and with_faults > ttl_ms:
        yield Finding(
            Severity.WARNING,
            "ttl_short_with_faults",
            "",
            f"with every attempt that lost workers, timeouts and dependencies may cost the longest "
            f"path takes {with_faults / 1000:g} s and the ttl is {ttl_ms / 1000:g} s: a person is "
            "asked when that is over; raise the ttl, or lower timeouts or max_infra_attempts",
        )


def _own_attempts(retry: RetryPolicy) -> int:
    return retry.max_attempts


def _all_attempts(retry: RetryPolicy) -> int:
    """The last failure of either kind ends it, whatever is left of the other budget."""
    return max(1, retry.max_attempts + retry.max_infra_attempts - 1)


def _worst_ms(step: StepPlan, attempts: int) -> int:
    waits = sum(ceiling_ms(step.retry, failures) for failures in range(1, attempts))
    return step.timeout_ms * attempts + waits


def _longest_ms(plan: Plan, attempts: Callable[[RetryPolicy], int]) -> int | None:
    """None where the plan has a cycle or an unknown need, which is a finding of its own."""
    waiting = {step.name: set(step.needs) for step in plan.steps if step.role is StepRole.FORWARD}
    by_name = {step.name: step for step in plan.steps}
    dependents: dict[str, list[str]] = {}
    for name, needs in waiting.items():
        for need in needs:
            dependents.setdefault(need, []).append(name)
    ends: dict[str, int] = {}
    ready = [name for name, needs in waiting.items() if not needs]
    while ready:
        name = ready.pop()
        step = by_name[name]
        ends[name] = _worst_ms(step, attempts(step.retry)) + max(
            (ends[need] for need in step.needs), default=0
        )
        for dependent in dependents.get(name, ()):
            waiting[dependent].discard(name)
            if not waiting[dependent]:
                ready.append(dependent)
    return max(ends.values(), default=0) if len(ends) == len(waiting) else None


def _risks(plan: Plan) -> Iterator[Finding]:
    for step in plan.steps:
        if step.risk is not Risk.NONE and not step.compensate and not step.risk_reason:
            yield Finding(
                Severity.ERROR,
                "risk_without_way_back",
                step.name,
                f"risk {step.risk.value}: name a compensation, or say in risk_reason why there "
                "is none",
            )


def _secrets(plan: Plan) -> Iterator[Finding]:
    marked = set(plan.secrets)
    fields = {
        field: step.name
        for step in plan.steps
        for field in (*step.reads, *step.writes, *step.may_write)
    }
    for field, step in sorted(fields.items()):
        if field not in marked and _SECRET.search(field):
            yield Finding(
                Severity.WARNING,
                "secret_not_marked",
                step,
                f"field {field!r} looks like a secret and is not in the flow's secrets: it would "
                "be shown on record",
            )


def _effects(step: Step) -> Iterator[Finding]:
    """An effect's name decides its key, so it must be the same text in every attempt."""
    for call in effect_calls(step):
        name = (
            call.args[0]
            if call.args
            else next((k.value for k in call.keywords if k.arg == "name"), None)
        )
        if not (isinstance(name, ast.Constant) and isinstance(name.value, str) and name.value):
            yield Finding(
                Severity.WARNING,
                "effect_not_named",
                step.name,
                f"line {call.lineno} of the body: name the effect by a literal text, its "
                "idempotency key derives from it",
            )
