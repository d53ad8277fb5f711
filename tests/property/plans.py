"""Plans that between them have every shape and policy that the fold treats differently."""

from __future__ import annotations

from dalsegno.schemas.plan import (
    Merge,
    MergeRule,
    Plan,
    RecoverPolicy,
    RetryPolicy,
    Risk,
    StepPlan,
    StepRole,
    UnknownPolicy,
)

_QUICK = RetryPolicy(max_attempts=2, max_infra_attempts=3, initial_ms=500, max_ms=4_000)


def _step(name: str, *needs: str, **how) -> StepPlan:
    how = {"queue": "default", "timeout_ms": 5_000, "retry": _QUICK, **how}
    return StepPlan(name=name, needs=needs, **how)


CHAIN = Plan(
    steps=(
        _step("a", reads=("input",), writes=("one",)),
        _step("b", "a", reads=("one", "input"), writes=("two",), may_write=("note",)),
        _step("c", "b", reads=("one", "two"), writes=("one",)),
    ),
    secrets=("input",),
)

DIAMOND = Plan(
    steps=(
        _step("a", writes=("log",)),
        _step("left", "a", writes=("best", "names"), unknown=UnknownPolicy.CHECK),
        _step("right", "a", writes=("best", "names"), unknown=UnknownPolicy.PERSON),
        _step("join", "left", "right", reads=("best", "log"), writes=("log",)),
        _step("undo", role=StepRole.COMPENSATION),
    ),
    merges=(
        Merge(field="best", rule=MergeRule.MAX),
        Merge(field="names", rule=MergeRule.COLLECT),
    ),
    gates=("fraud",),
    stop_clocks_for_people=True,
)

OBSERVED = Plan(
    steps=(
        _step("own", queue="", writes=("one",)),
        _step("again", queue="", recover=RecoverPolicy.REDISPATCH, writes=("two",)),
        _step("asked", "own", queue="", recover=RecoverPolicy.PERSON),
        _step("given", "own", "again", reads=("one", "two", "more"), writes=("three",)),
    ),
)

RISKY = Plan(steps=(_step("pay", risk=Risk.MONEY, risk_reason="moves money"),))

PLANS = (CHAIN, DIAMOND, OBSERVED, RISKY)

# Steps that an extension adds; the third cannot be added to any of the plans.
EXTENSIONS = (
    (_step("more 1", reads=("input",), writes=("extra",)),),
    (_step("more 2"), _step("more 3", "more 2")),
    (_step("x", "y"), _step("y", "x")),
)
