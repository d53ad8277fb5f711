"""A step as a program declares it: its options, its function, and the plan entry they make."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

from dalsegno.schemas.plan import (
    RecoverPolicy,
    RetryPolicy,
    Risk,
    StepPlan,
    StepRole,
    UnknownPolicy,
)
from dalsegno.streams.client.context import BlockingContext, Context
from dalsegno.streams.client.durations import Duration, to_ms
from dalsegno.streams.client.errors import FlowError
from dalsegno.streams.client.schema import ContextSchema

Outputs = Mapping[str, object] | None
"""What a body returns: a value for each field that it writes. `None` writes nothing."""

AsyncBody = Callable[[Context], Awaitable[Outputs]]
PlainBody = Callable[[BlockingContext], Outputs]
StepRef = str | Callable[..., object]
"""Another step: its name, or the function that was declared as it."""

RiskName = Literal["none", "money", "privilege", "external", "commitment", "sensitive"]


class StepOptions(TypedDict, total=False):
    """What a step may declare.

    `needs`: steps that must have completed. `reads`, `writes`, `may_write`: context fields;
    `writes` must exist once the step has completed, `may_write` need not. `depends_on`: services it
    calls.
    `timeout`: bound on one attempt. `heartbeat`: declared interval. `compensate`: the step that
    undoes this one. `goal`: a sentence for whoever takes over. `unknown`: what to do about an
    effect that was intended and never confirmed. `recover`: for steps that services run by
    themselves. `pivot`: once it is done, or may have been, the run only goes forward.
    """

    name: str
    needs: Sequence[StepRef]
    reads: Sequence[str]
    writes: Sequence[str]
    may_write: Sequence[str]
    depends_on: Sequence[str]
    queue: str
    timeout: Duration
    heartbeat: Duration
    retry: RetryPolicy
    risk: Risk | RiskName
    risk_reason: str
    compensate: StepRef
    goal: str
    unknown: UnknownPolicy | Literal["retry", "check", "person"]
    recover: RecoverPolicy | Literal["redispatch", "notify", "person"]
    pivot: bool


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A declared step. `function` is None for steps that services run by themselves."""

    flow: str
    name: str
    options: StepOptions
    role: StepRole
    function: AsyncBody | PlainBody | None
    is_async: bool
    queue: str
    """Where its handoffs go; empty for steps that services run by themselves."""
    declared: bool
    """Whether both `reads` and `writes` (or `may_write`) were given, even if empty."""
    schema: ContextSchema | None = None
    """What the context of its flow is, if that says so."""
    secrets: frozenset[str] = frozenset()
    """Fields that its flow marks secret."""

    @property
    def reads(self) -> frozenset[str]:
        return frozenset(self.options.get("reads", ()))

    @property
    def writable(self) -> frozenset[str]:
        """Every field that the step may write."""
        return frozenset((*self.options.get("writes", ()), *self.options.get("may_write", ())))

    @property
    def unknown(self) -> UnknownPolicy:
        return UnknownPolicy(self.options.get("unknown", UnknownPolicy.RETRY))

    def plan(self, name_of: Callable[[StepRef], str]) -> StepPlan:
        """The plan's entry; `name_of` resolves references to other steps."""
        given = self.options
        default = StepPlan(name=self.name)
        try:
            return StepPlan(
                name=self.name,
                needs=tuple(name_of(ref) for ref in given.get("needs", ())),
                reads=tuple(given.get("reads", ())),
                writes=tuple(given.get("writes", ())),
                may_write=tuple(given.get("may_write", ())),
                depends_on=tuple(given.get("depends_on", ())),
                queue=self.queue,
                timeout_ms=to_ms(given.get("timeout", default.timeout_ms), "timeout"),
                heartbeat_ms=to_ms(given.get("heartbeat", default.heartbeat_ms), "heartbeat"),
                retry=given.get("retry", default.retry),
                risk=Risk(given.get("risk", default.risk)),
                risk_reason=given.get("risk_reason", ""),
                role=self.role,
                compensate=name_of(given["compensate"]) if "compensate" in given else "",
                goal=given.get("goal", "") or _first_line(self.function),
                unknown=self.unknown,
                recover=RecoverPolicy(given.get("recover", default.recover)),
                pivot=given.get("pivot", False),
            )
        except ValueError as error:
            raise FlowError(self.flow, self.name, str(error)) from error


def _first_line(function: object) -> str:
    """A body's own first line of documentation is its goal, unless the step declares another."""
    text = inspect.getdoc(function) if function is not None else None
    return text.splitlines()[0].strip() if text else ""


def make_step(
    flow: str,
    options: StepOptions,
    function: AsyncBody | PlainBody | None,
    role: StepRole = StepRole.FORWARD,
    queue: str = "default",
) -> Step:
    """Check what can be checked alone; `queue` is the flow's default. Raises `FlowError`."""
    name = options.get("name") or getattr(function, "__name__", "")
    if not name or name == "<lambda>":
        raise FlowError(flow, "", "a step needs a name: pass name= or use a named function")
    for key in ("needs", "reads", "writes", "may_write", "depends_on"):
        if isinstance(options.get(key), str):
            raise FlowError(flow, name, f"{key} must be a list of names, not one text")
    for key in ("reads", "writes", "may_write"):
        names: Sequence[object] = options.get(key, ())  # type: ignore[assignment]
        if any(not isinstance(item, str) for item in names):
            raise FlowError(flow, name, f"{key} must hold names of context fields")
    return Step(
        flow=flow,
        name=name,
        options=options,
        role=role,
        function=function,
        is_async=inspect.iscoroutinefunction(function) or _has_async_call(function),
        queue="" if function is None else options.get("queue", queue),
        declared="reads" in options and ("writes" in options or "may_write" in options),
    )


def _has_async_call(function: object) -> bool:
    """Objects with an async `__call__` are async bodies too."""
    return not inspect.isfunction(function) and inspect.iscoroutinefunction(
        getattr(type(function), "__call__", None)  # noqa: B004 - not whether, but which
    )
