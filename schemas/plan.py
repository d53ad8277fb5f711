"""The plan of a run: a directed acyclic graph of steps that travels inside `RunStarted`."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Risk(StrEnum):
    """What a step can damage. Every risk but `NONE` needs an approval before the step runs."""

    NONE = "none"
    MONEY = "money"
    PRIVILEGE = "privilege"
    EXTERNAL = "external"
    COMMITMENT = "commitment"
    SENSITIVE = "sensitive"


class UnknownPolicy(StrEnum):
    """What to do about an effect that was intended and never confirmed."""

    RETRY = "retry"
    CHECK = "check"
    PERSON = "person"


class RecoverPolicy(StrEnum):
    """What to do when a step that a service runs by itself has stalled."""

    REDISPATCH = "redispatch"
    NOTIFY = "notify"
    PERSON = "person"


class StepRole(StrEnum):
    """`FORWARD` steps form the plan; `COMPENSATION` steps only undo one of them."""

    FORWARD = "forward"
    COMPENSATION = "compensation"


class MergeRule(StrEnum):
    """How values that unordered steps write to one field become one, in whatever order they come.

    `MAX`, `MIN`: by packed value order of numbers and texts. `UNION`: maps joined by key.
    `COLLECT`: a map from step name to the value that the step wrote.
    """

    MAX = "max"
    MIN = "min"
    UNION = "union"
    COLLECT = "collect"


class FieldType(StrEnum):
    """What a context field holds. `ANY` says nothing of it; `NUMBER` takes whole ones, too."""

    ANY = "any"
    TEXT = "text"
    NUMBER = "number"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    TIME = "time"
    BYTES = "bytes"
    LIST = "list"
    MAP = "map"


class OnFailure(StrEnum):
    """Where a run goes when a step fails for good."""

    PERSON = "person"
    COMPENSATE = "compensate"


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Bounds on further attempts. Application and infrastructure faults have separate budgets.

    `max_attempts` counts attempts that started and failed by the step's own word (first one
    included); `max_infra_attempts` counts attempts lost to timeouts, workers and dependencies.
    Delay before attempt n: from half of `min(max_ms, initial_ms * (factor_percent/100)^(n-2))` to
    all of it, by a hash; never shorter than the one before.
    """

    max_attempts: int = 3
    max_infra_attempts: int = 20
    initial_ms: int = 500
    max_ms: int = 60_000
    factor_percent: int = 200


class StepPlan(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One step of a plan, as declared.

    `pivot`: once the step is done, or may have been, the run only goes forward.
    """

    name: str
    needs: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    may_write: tuple[str, ...] = ()
    depends_on: tuple[str, ...] = ()
    queue: str = ""
    timeout_ms: int = 60_000
    heartbeat_ms: int = 1_000
    retry: RetryPolicy = RetryPolicy()
    risk: Risk = Risk.NONE
    risk_reason: str = ""
    role: StepRole = StepRole.FORWARD
    compensate: str = ""
    goal: str = ""
    unknown: UnknownPolicy = UnknownPolicy.RETRY
    recover: RecoverPolicy = RecoverPolicy.NOTIFY
    pivot: bool = False


class Merge(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The merge rule of one context field."""

    field: str
    rule: MergeRule


class ContextField(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a context field is, for whoever has to supply it: its type, and words on it."""

    name: str
    type: FieldType = FieldType.ANY
    text: str = ""


class Plan(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Steps and the rules that hold for all of them.

    `secrets` names context fields whose values never leave events, changelog and handoffs.
    `gates`: a run that carries one of these risk flags starts no further step until a person
    agrees. `fields`: context fields of which more is known than their name.
    """

    steps: tuple[StepPlan, ...]
    secrets: tuple[str, ...] = ()
    merges: tuple[Merge, ...] = ()
    gates: tuple[str, ...] = ()
    on_failure: OnFailure = OnFailure.PERSON
    stop_clocks_for_people: bool = False
    fields: tuple[ContextField, ...] = ()
