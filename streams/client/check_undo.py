"""What to mend in how a flow takes back what it did."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dalsegno.schemas.plan import OnFailure, Plan, StepPlan, StepRole
from dalsegno.streams.client.finding import Finding, Severity

if TYPE_CHECKING:
    from dalsegno.streams.client.step import Step

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def clean_up(plan: Plan, steps: Sequence[Step]) -> Iterator[Finding]:
    """Clean-up reaches every way out: what has effects can be taken back, each by one step of its
    own, and no compensation hangs loose.
    """
    owners = {step.compensate: step.name for step in plan.steps if step.compensate}
    sources = {step.name: step for step in steps}
    roles = {step.name: step.role for step in plan.steps}
    for step in plan.steps:
        if step.role is StepRole.FORWARD:
            calls = list(effect_calls(sources[step.name]))
            yield from _undos(step, calls, roles, owners)
            if plan.on_failure is OnFailure.COMPENSATE:
                yield from _way_back(step, calls, quiet=_acts_by_itself(sources[step.name]))
    for step in plan.steps:
        if step.role is StepRole.COMPENSATION and step.name not in owners:
            yield Finding(
                Severity.WARNING,
                "compensation_unused",
                step.name,
                "no step names it in compensate=, and no effect in undo=",
            )
    yield from _pivots(plan)


def _undos(
    step: StepPlan,
    calls: Sequence[ast.Call],
    roles: dict[str, StepRole],
    owners: dict[str, str],
) -> Iterator[Finding]:
    """Each `undo=` that is a literal text. Notes in `owners` what a loose compensation is for."""
    for call in calls:
        for name in _texts(call, "undo"):
            if roles.get(name) is not StepRole.COMPENSATION:
                why = f"undo={name!r} is no compensation of this flow: a person would have to do it"
                yield Finding(Severity.ERROR, "unknown_undo", step.name, why)
            elif owners.setdefault(name, step.name) != step.name:
                yield Finding(
                    Severity.ERROR,
                    "shared_undo",
                    step.name,
                    f"undo={name!r} belongs to step {owners[name]!r}: a compensation takes back "
                    "one step, declare one for each",
                )


def _way_back(step: StepPlan, calls: Sequence[ast.Call], *, quiet: bool) -> Iterator[Finding]:
    loose = [call for call in calls if not any(k.arg == "undo" for k in call.keywords)]
    if loose and not step.compensate:
        yield Finding(
            Severity.WARNING,
            "effect_without_way_back",
            step.name,
            "has effects and no compensation, and the flow compensates on failure",
        )
    if step.compensate and quiet:
        yield Finding(
            Severity.WARNING,
            "act_not_declared",
            step.name,
            "has a compensation and no ctx.effect: what it did before it died midway would not "
            "be taken back",
        )


def _pivots(plan: Plan) -> Iterator[Finding]:
    """Steps that a pivot precedes are never taken back."""
    behind: set[str] = set()
    pivots = {step.name for step in plan.steps if step.pivot}
    if pivots and plan.on_failure is not OnFailure.COMPENSATE:
        for name in sorted(pivots):
            why = "a pivot, and the flow does not compensate on failure"
            yield Finding(Severity.WARNING, "pivot_unused", name, why)
    found = bool(pivots)
    while found:
        more = {
            step.name
            for step in plan.steps
            if step.name not in behind and (pivots | behind) & set(step.needs)
        }
        behind |= more
        found = bool(more)
    for step in plan.steps:
        if step.compensate and (step.name in behind or step.pivot):
            yield Finding(
                Severity.WARNING,
                "compensation_behind_pivot",
                step.name,
                "is or comes after a pivot: from there the run only goes forward, and its "
                "compensation runs only when a person says so before the pivot is passed",
            )


def _texts(call: ast.Call, keyword: str) -> Iterator[str]:
    for given in call.keywords:
        name = given.value.value if isinstance(given.value, ast.Constant) else None
        if given.arg == keyword and isinstance(name, str) and name:
            yield name


def _text_of(step: Step) -> ast.Module | None:
    """The body's text, where it can be had."""
    if step.function is None:
        return None
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(step.function)))
    except (OSError, TypeError, SyntaxError):
        return None


def _acts_by_itself(step: Step) -> bool:
    """Whether a body has no effect, and gives its context to nobody who could have one."""
    tree = _text_of(step)
    if tree is None or any(effect_calls(step)):
        return False
    names = {
        argument.arg
        for node in ast.walk(tree)
        if isinstance(node, _FUNCTIONS)
        for argument in node.args.args
    }
    return not any(
        isinstance(value, ast.Name) and value.id in names
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for value in (*node.args, *(keyword.value for keyword in node.keywords))
    )


def effect_calls(step: Step) -> Iterator[ast.Call]:
    """Calls of `<context>.effect(...)` in the body's text; none where the text cannot be had."""
    tree = _text_of(step)
    if tree is None:
        return
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "effect"
        ):
            yield node
