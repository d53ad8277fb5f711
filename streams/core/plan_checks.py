"""Checks of a plan that look at one step at a time: names, roles, queues and limits."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Final

from dalsegno.schemas.control import Policy
from dalsegno.schemas.plan import Plan, RetryPolicy, Risk, StepPlan, StepRole
from dalsegno.streams.core.names import name_fault
from dalsegno.streams.core.plan_errors import PlanRefused

# Ten years. Keeps every sum of times far inside 64 bits and inside what clocks can show.
_TIME_MS_MAX: Final = 315_360_000_000
_ATTEMPTS_MAX: Final = 1_000_000
_FACTOR_PERCENT_MAX: Final = 10_000
# What a form shows of a field, and how many fields a plan describes.
FIELD_TEXT_CHARS_MAX: Final = 240
_FIELDS_MAX: Final = 1_000


def check_names(
    steps: Sequence[StepPlan], policy: Policy, before: Container[str], count: int
) -> set[str]:
    """Refuses `no_steps`, `too_many_steps`, `bad_name`, `duplicate_name` and `unknown_queue`.

    `before`: names of the `count` steps that the plan has already. Returns names found good.
    """
    if not steps:
        raise PlanRefused("no_steps", (), "a plan or an extension needs at least one step")
    count += len(steps)
    if count > policy.steps_max:
        raise PlanRefused(
            "too_many_steps", (), f"{count} steps, the policy allows {policy.steps_max}"
        )
    seen: set[str] = set()
    # Field names repeat from step to step: each is looked at once.
    good: set[str] = set()
    queues = frozenset(policy.queues)
    for step in steps:
        _check_name((), "step", step.name)
        if step.name in seen or step.name in before:
            raise PlanRefused("duplicate_name", (step.name,), f"two steps are named {step.name!a}")
        seen.add(step.name)
        for what, names in (
            ("field", step.reads),
            ("field", step.writes),
            ("field", step.may_write),
            ("dependency", step.depends_on),
        ):
            for name in names:
                if name not in good:
                    _check_name((step.name,), what, name)
                    good.add(name)
        if step.queue and step.queue not in queues:
            raise PlanRefused(
                "unknown_queue",
                (step.name,),
                f"step {step.name!a} goes to queue {step.queue!a}, which the policy does not list;"
                " create the queue's topic, then add it to the policy",
            )
    return good


def check_rules(plan: Plan, good: set[str]) -> None:
    """Refuses `bad_name` and `duplicate_name` in what holds for all steps."""
    for what, names in (("field", plan.secrets), ("risk flag", plan.gates)):
        for name in names:
            if name not in good:
                _check_name((), what, name)
    fields: set[str] = set()
    for merge in plan.merges:
        _check_name((), "field", merge.field)
        if merge.field in fields:
            raise PlanRefused("duplicate_name", (), f"field {merge.field!a} has two merge rules")
        fields.add(merge.field)
    _check_fields(plan)


def _check_fields(plan: Plan) -> None:
    """Refuses `bad_field`, `bad_name` and `duplicate_name` in what the plan says of fields."""
    if len(plan.fields) > _FIELDS_MAX:
        raise PlanRefused(
            "bad_field", (), f"{len(plan.fields)} fields are described, {_FIELDS_MAX} may be"
        )
    seen: set[str] = set()
    for field in plan.fields:
        _check_name((), "field", field.name)
        if field.name in seen:
            raise PlanRefused("duplicate_name", (), f"field {field.name!a} is described twice")
        seen.add(field.name)
        if len(field.text) > FIELD_TEXT_CHARS_MAX or any(c < " " for c in field.text):
            raise PlanRefused(
                "bad_field",
                (),
                f"the text of field {field.name!a} is one line of at most {FIELD_TEXT_CHARS_MAX}"
                " characters",
            )


def _check_name(path: tuple[str, ...], what: str, name: str) -> None:
    if fault := name_fault(name):
        raise PlanRefused("bad_name", path or (name,), f"the name of a {what} {fault}: {name!a}")


def check_roles(steps: Sequence[StepPlan], role_of: Callable[[str], StepRole | None]) -> None:
    """Refuses `unknown_need`, `unknown_compensation`, `shared_compensation` and `risky_step`.

    `role_of` knows every step by its name, and says None for what is none.
    """
    undone: dict[str, str] = {}
    for step in steps:
        other = undone.setdefault(step.compensate, step.name) if step.compensate else step.name
        if other != step.name:
            raise PlanRefused(
                "shared_compensation",
                (other, step.name, step.compensate),
                f"steps {other!a} and {step.name!a} are both undone by {step.compensate!a}: a"
                " compensation belongs to one step, declare one for each",
            )
        if step.role is StepRole.COMPENSATION and step.needs:
            raise PlanRefused(
                "unknown_need",
                (step.name, step.needs[0]),
                f"{step.name!a} is a compensation: it runs when what it undoes is undone, and needs"
                " nothing else",
            )
        for need in step.needs:
            role = role_of(need)
            if role is not StepRole.FORWARD:
                why = "no step has that name" if role is None else "that is a compensation"
                raise PlanRefused(
                    "unknown_need", (step.name, need), f"step {step.name!a} needs {need!a}: {why}"
                )
        if step.compensate and (
            role_of(step.compensate) is not StepRole.COMPENSATION
            or step.role is StepRole.COMPENSATION
        ):
            raise PlanRefused(
                "unknown_compensation",
                (step.name, step.compensate),
                f"step {step.name!a} is undone by {step.compensate!a}, which is no step with the"
                " role compensation",
            )
        if step.risk is not Risk.NONE:
            _check_risk(step)


def _check_risk(step: StepPlan) -> None:
    """A risky step waits for an approval, so the engine must be the one that gives it out."""
    if not step.compensate and not step.risk_reason:
        raise PlanRefused(
            "risky_step",
            (step.name,),
            f"step {step.name!a} has the risk {step.risk.value}: name a compensation, or say in"
            " risk_reason why there is none",
        )
    if not step.queue:
        raise PlanRefused(
            "risky_step",
            (step.name,),
            f"step {step.name!a} has the risk {step.risk.value} and no queue: only what the engine"
            " gives out can wait for an approval",
        )


def check_limits(steps: Sequence[StepPlan], ttl_ms: int) -> None:
    """Refuses `bad_limits`: times, attempts and factors outside what can be meant."""
    _within((), "time to live", ttl_ms, 1, _TIME_MS_MAX)
    retries: set[int] = set()
    for step in steps:
        path = (step.name,)
        _within(path, "timeout_ms", step.timeout_ms, 1, _TIME_MS_MAX)
        _within(path, "heartbeat_ms", step.heartbeat_ms, 1, _TIME_MS_MAX)
        # Most steps share one policy object.
        if id(step.retry) not in retries:
            check_retry(path, step.retry)
            retries.add(id(step.retry))


def check_retry(path: tuple[str, ...], retry: RetryPolicy) -> None:
    """Refuses `bad_limits` in a retry policy of the step that `path` names, or of nobody's."""
    _within(path, "retry.max_attempts", retry.max_attempts, 1, _ATTEMPTS_MAX)
    _within(path, "retry.max_infra_attempts", retry.max_infra_attempts, 1, _ATTEMPTS_MAX)
    _within(path, "retry.initial_ms", retry.initial_ms, 0, _TIME_MS_MAX)
    _within(path, "retry.max_ms", retry.max_ms, retry.initial_ms, _TIME_MS_MAX)
    _within(path, "retry.factor_percent", retry.factor_percent, 100, _FACTOR_PERCENT_MAX)


def _within(path: tuple[str, ...], what: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        where = f" of step {path[0]!a}" if path else ""
        raise PlanRefused("bad_limits", path, f"{what}{where} is {value}; allowed: {low} to {high}")
