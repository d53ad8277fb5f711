"""A flow: a named, versioned kind of run, declared in Python and sent along as data."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypedDict, TypeVar, Unpack, overload

from dalsegno.schemas.plan import (
    ContextField,
    FieldType,
    Merge,
    MergeRule,
    OnFailure,
    Plan,
    StepRole,
)
from dalsegno.streams.client.check import Finding, findings
from dalsegno.streams.client.durations import Duration, to_ms
from dalsegno.streams.client.errors import FlowError
from dalsegno.streams.client.schema import ContextSchema
from dalsegno.streams.client.schema_check import schema_findings
from dalsegno.streams.client.step import AsyncBody, PlainBody, Step, StepOptions, StepRef, make_step

A = TypeVar("A", bound=AsyncBody)
P = TypeVar("P", bound=PlainBody)
StopHook = Callable[[], Awaitable[None] | None]
"""What is called when a worker stops."""
H = TypeVar("H", bound=StopHook)


FieldTypeName = Literal[
    "any", "text", "number", "integer", "boolean", "time", "bytes", "list", "map"
]
FieldNote = FieldTypeName | FieldType | tuple[FieldTypeName | FieldType, str]


class FlowOptions(TypedDict, total=False):
    """What a flow may declare beside its name.

    `ttl`: bound on a whole run. `queue`: where its steps go unless they say otherwise. `secrets`:
    context fields whose values are masked on record. `merges`: rule by field for values that
    unordered steps write. `gates`: risk flags that stop further steps until a person agrees.
    `on_failure`: where a run goes when a step fails for good. `stop_clocks_for_people`: its TTL
    rests while people decide. `fields`: what context fields are, for whoever has to supply a
    missing one: a type, or a type and words on it. `context_schema`: the context's fields and
    their types, by version.
    """

    ttl: Duration
    queue: str
    secrets: Sequence[str]
    merges: Mapping[str, MergeRule | Literal["max", "min", "union", "collect"]]
    gates: Sequence[str]
    on_failure: OnFailure | Literal["person", "compensate"]
    stop_clocks_for_people: bool
    fields: Mapping[str, FieldNote]
    context_schema: ContextSchema


class _Declare:
    """The typed decorator: it registers a body and gives it back unchanged."""

    def __init__(self, flow: Flow, options: StepOptions, role: StepRole) -> None:
        self._flow = flow
        self._options = options
        self._role = role

    @overload
    def __call__(self, function: A) -> A: ...
    @overload
    def __call__(self, function: P) -> P: ...
    def __call__(self, function: AsyncBody | PlainBody) -> AsyncBody | PlainBody:
        flow = self._flow
        flow.add(make_step(flow.name, self._options, function, self._role, flow.queue))
        return function


class Flow:
    """Declares the steps of a kind of run. Mutable while it is declared, plain data afterwards."""

    def __init__(self, name: str, *, version: int = 1, **options: Unpack[FlowOptions]) -> None:
        """Raises `FlowError` for a bad name, version or duration."""
        if not name or len(name) > 128:
            raise FlowError(name, "", "a flow's name has 1 to 128 characters")
        if isinstance(version, bool) or version < 1:
            raise FlowError(name, "", f"a flow's version is an integer from 1, not {version!r}")
        self.name = name
        self.version = version
        try:
            self.ttl_ms = to_ms(options.get("ttl", "24h"), "ttl")
        except ValueError as error:
            raise FlowError(name, "", str(error)) from error
        self.options = options
        self._steps: dict[str, Step] = {}
        self._stops: list[StopHook] = []

    def __repr__(self) -> str:
        return f"<Flow {self.name} version {self.version}, {len(self._steps)} steps>"

    def __iter__(self) -> Iterator[Step]:
        return iter(self._steps.values())

    @property
    def schema(self) -> ContextSchema | None:
        """What its context is, if it says so."""
        return self.options.get("context_schema")

    @property
    def secrets(self) -> tuple[str, ...]:
        """Fields that are masked: those it names, and those that its schema marks."""
        marked = () if self.schema is None else self.schema.secrets
        return tuple(dict.fromkeys((*self.options.get("secrets", ()), *marked)))

    @property
    def queue(self) -> str:
        """Where its steps go unless they say otherwise."""
        return self.options.get("queue", "default")

    def get(self, name: str) -> Step | None:
        """The step of that name, or None."""
        return self._steps.get(name)

    def step(self, **options: Unpack[StepOptions]) -> _Declare:
        """Declare the decorated function, async or plain, as a step."""
        return _Declare(self, options, StepRole.FORWARD)

    def compensation(self, **options: Unpack[StepOptions]) -> _Declare:
        """Declare the decorated function as a step that only takes another back.

        That one names it in `compensate=`, or one of its effects in `undo=`. Its body finds what
        there is to take back in `ctx.undo`.
        """
        return _Declare(self, options, StepRole.COMPENSATION)

    def on_stop(self, function: H) -> H:
        """Have each worker of this flow call the function, async or plain, when it stops.

        Once, on the loop that ran the bodies, after the last of them has ended: for sessions and
        pools that they share. A decorator, or called with a function; a function that several flows
        name is called once. One that raises is logged, and the others are called all the same.
        """
        self._stops.append(function)
        return function

    @property
    def stop_hooks(self) -> tuple[StopHook, ...]:
        """What a worker calls when it stops, in the order of declaration."""
        return tuple(self._stops)

    def observed(self, **options: Unpack[StepOptions]) -> str:
        """Declare a step that its service runs by itself and only reports. Returns its `name`."""
        return self.add(make_step(self.name, options, None)).name

    def add(self, step: Step) -> Step:
        """Add a step made elsewhere. Raises `FlowError` if its name is taken, or if it names a
        field that the context's schema does not have.
        """
        if step.name in self._steps:
            raise FlowError(self.name, step.name, "two steps have this name")
        self._check_fields(step.name, sorted(step.reads | step.writable))
        step = replace(step, schema=self.schema, secrets=frozenset(self.secrets))
        self._steps[step.name] = step
        return step

    def plan(self) -> Plan:
        """The plan that travels inside `RunStarted`. Raises `FlowError` for references it cannot
        resolve.
        """
        if not self._steps:
            raise FlowError(self.name, "", "no step is declared")
        given = self.options
        named = given.get("secrets", ())
        self._check_fields("", [*named, *given.get("merges", {}), *given.get("fields", {})])
        try:
            merges = tuple(
                Merge(field=field, rule=MergeRule(rule))
                for field, rule in given.get("merges", {}).items()
            )
            on_failure = OnFailure(given.get("on_failure", OnFailure.PERSON))
            fields = tuple(
                _context_field(name, note) for name, note in given.get("fields", {}).items()
            )
        except ValueError as error:
            raise FlowError(self.name, "", str(error)) from error
        return Plan(
            steps=tuple(step.plan(self._resolver(step)) for step in self),
            secrets=self.secrets,
            merges=merges,
            gates=tuple(given.get("gates", ())),
            on_failure=on_failure,
            stop_clocks_for_people=given.get("stop_clocks_for_people", False),
            fields=fields,
        )

    def check(self) -> list[Finding]:
        """What to mend before production, worst first; empty when nothing was found."""
        found = findings(self.plan(), tuple(self), self.ttl_ms, self.name)
        if self.schema is not None:
            found += schema_findings(self.schema)
        return sorted(found, key=lambda finding: -finding.severity)

    def _check_fields(self, step: str, names: Sequence[str]) -> None:
        schema = self.schema
        if schema is None:
            return
        for name in names:
            if name not in schema.fields:
                raise FlowError(
                    self.name,
                    step,
                    f"names the field {name!r}, which context schema {schema.name!r} version "
                    f"{schema.version} does not have",
                )

    def _resolver(self, step: Step) -> Callable[[StepRef], str]:
        def name_of(ref: StepRef) -> str:
            if isinstance(ref, str):
                if ref not in self._steps:
                    raise FlowError(
                        self.name, step.name, f"refers to {ref!r}, which is no step of this flow"
                    )
                return ref
            for other in self:
                if other.function is ref:
                    return other.name
            shown = getattr(ref, "__name__", repr(ref))
            raise FlowError(
                self.name,
                step.name,
                f"refers to the function {shown!r}, which is no step of this flow",
            )

        return name_of


def _context_field(name: str, note: FieldNote) -> ContextField:
    """Raises `ValueError` for a type that there is not."""
    if isinstance(note, str):
        return ContextField(name=name, type=FieldType(note))
    kind, text = note
    return ContextField(name=name, type=FieldType(kind), text=text)
