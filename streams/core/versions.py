"""Versions of runs, as the fold makes them: what an owner needs to keep a history.

A run version stands for the facts of a run: its state, its flags, the steps that are settled
(completed, skipped, compensated), and its context. What is noted here decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from dalsegno.schemas.control import Policy
from dalsegno.schemas.outputs import RunState, StepState
from dalsegno.streams.core.capturing import Held
from dalsegno.streams.core.context import Context
from dalsegno.streams.core.context_masking import (
    NO_OPS,
    masked_bytes,
    masked_context,
    masked_operations,
    without_secrets,
)
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.plan_store import PlanEntry
from dalsegno.streams.core.rows import StepRow
from dalsegno.streams.core.runstate import Run

_OPEN: Final = 0
_STATES: Final = (None, StepState.COMPLETED, StepState.SKIPPED, StepState.COMPENSATED)
SETTLED: Final[Mapping[StepState, int]] = {
    state: code for code, state in enumerate(_STATES) if state is not None
}
"""Codes of the states of settled steps; 0 stands for all others."""
_BYTES_MAX: Final = 1 << 30
_UNBOUNDED: Final = Policy(context_bytes_max=_BYTES_MAX, inline_bytes_max=_BYTES_MAX)
"""What was allowed when it happened is allowed when it is looked at."""


class Made(msgspec.Struct, frozen=True, gc=False):
    """One version. Contexts and operations are without secrets (`context_masking`).

    `began_ms`: log time of the run's start: an id may be used again once its run is forgotten.
    `step`: the one that it settled, if any. `settled`: place and code of each step whose standing
    changed. `operations` lead from the context before to the one after; `first` is the context of a
    new run. `context_bytes`: packed size of the context after it. `field_versions`: of its context
    schema, as in `RunHead`.
    """

    run_id: str
    began_ms: int
    number: int
    state: RunState
    flags: tuple[str, ...]
    step: str
    at_ms: int
    offset: int
    settled: tuple[tuple[int, int], ...]
    entry: PlanEntry
    schema: str
    schema_version: int
    context_bytes: int
    operations: bytes = NO_OPS
    first: bytes | None = None
    field_versions: tuple[tuple[str, int], ...] = ()

    @property
    def weight(self) -> int:
        """Bytes that it holds in memory, more or less."""
        return 400 + len(self.operations) + len(self.first or b"")


class StepStanding(msgspec.Struct, frozen=True):
    """A step that is settled."""

    step: str
    state: StepState


class VersionView(msgspec.Struct, frozen=True, kw_only=True):
    """A run as it was at one of its versions.

    `at_ms`: log time at which it came to be so. `settled`: steps that were completed, skipped or
    compensated, in the order of the plan. `context`: a MessagePack map without secret fields, which
    `secrets_omitted` names. `source`: `chain`, `memory` or `log`, whence it was had.
    """

    run_id: str
    flow: str
    flow_version: int
    run_version: int
    state: RunState
    at_ms: int
    plan_digest: str
    flags: tuple[str, ...]
    settled: tuple[StepStanding, ...]
    context: bytes
    secrets_omitted: tuple[str, ...]
    source: str = ""
    context_schema: str = ""
    context_schema_version: int = 0
    field_versions: tuple[tuple[str, int], ...] = ()


class Whose(msgspec.Struct, frozen=True, gc=False):
    """A live run, and its plan. `began_ms`: its start; `newest`: its run version."""

    run_id: str
    began_ms: int
    flow: str
    flow_version: int
    entry: PlanEntry
    newest: int


class Versions:
    """Notes versions for an owner that has asked for them; see `Runs.adopt`."""

    __slots__ = ("_look", "_made")

    def __init__(self, look: Callable[[str], Held | None]) -> None:
        self._look = look
        self._made: list[Made] | None = None

    @property
    def wanted(self) -> bool:
        """Whether anybody drains them."""
        return self._made is not None

    def keep(self) -> None:
        """Note what is made from here on."""
        if self._made is None:
            self._made = []

    def drain(self) -> list[Made]:
        """What was made since the last call, in order."""
        made = self._made
        if not made:
            return []
        self._made = []
        return made

    def of(self, run_id: str) -> list[Made]:
        """Those of a run that were not drained yet."""
        return [each for each in self._made or () if each.run_id == run_id]

    def forget(self, run_id: str) -> None:
        """The run is erased: nothing is left of those that were not drained yet."""
        if self._made:
            self._made = [each for each in self._made if each.run_id != run_id]

    def now(self, run_id: str) -> VersionView | None:
        """The newest version of a live run, as its state says."""
        held = self._look(run_id)
        return view_now(held) if isinstance(held, Run) else None

    def past(self, run_id: str) -> Past | None:
        """The facts of a live run as they are now, to go on from. `at_ms` is 0."""
        held = self._look(run_id)
        if not isinstance(held, Run):
            return None
        head, plan = held.head, held.entry.plan
        context = masked_context(held.context, plan.secrets)
        settled = standing(enumerate(held.rows))
        return Past(
            head.run_version,
            head.state,
            head.flags,
            0,
            plan.digest,
            settled,
            context,
            "memory",
            head.context_schema,
            head.context_schema_version,
            head.field_versions,
        )

    def whose(self, run_id: str) -> Whose | None:
        """A live run, for the view of an earlier version."""
        held = self._look(run_id)
        if not isinstance(held, Run):
            return None
        head = held.head
        return Whose(
            run_id, head.started_ms, head.flow, head.flow_version, held.entry, head.run_version
        )

    def note(self, draft: Draft) -> None:
        """A unit that makes a version is about to be adopted."""
        assert self._made is not None, "only asked when they are wanted"
        self._made.append(_made(draft))


def _made(draft: Draft) -> Made:
    run, head, change = draft.run, draft.head, draft.change
    secrets = draft.plan.secrets
    context = run.context if change is None else change
    size = run.context.size_bytes if change is None else change.size_bytes
    operations, first = NO_OPS, None
    if run.head.run_version == 0:
        first = masked_context(context, secrets) if secrets else context.pack()
    elif change is not None:
        operations = change.operations()
        if secrets:
            operations = masked_operations(operations, secrets)
    settled = tuple(
        (place, SETTLED.get(draft.rows[place].state, _OPEN))
        for place, before in draft.before.items()
        if before in SETTLED or draft.rows[place].state in SETTLED
    )
    return Made(
        run.id,
        head.started_ms,
        head.run_version,
        head.state,
        head.flags,
        next((draft.steps[place].name for place, code in settled if code), ""),
        head.updated_ms,
        draft.now.offset,
        settled,
        draft.entry,
        head.context_schema,
        head.context_schema_version,
        masked_bytes(context, size, secrets) if secrets else size,
        operations,
        first,
        head.field_versions,
    )


def standing(rows: Iterable[tuple[int, StepRow]]) -> dict[int, int]:
    """Places and codes of the settled steps among these rows, by place."""
    return {place: SETTLED[row.state] for place, row in rows if row.state in SETTLED}


class Past(msgspec.Struct, frozen=True, gc=False):
    """The facts of a run at one version. `context` is masked; `settled`: places and codes."""

    number: int
    state: RunState
    flags: tuple[str, ...]
    at_ms: int
    plan_digest: bytes
    settled: Mapping[int, int]
    context: bytes
    source: str
    schema: str
    schema_version: int
    field_versions: tuple[tuple[str, int], ...]


class Facts:
    """What a run is at one version, followed from version to version."""

    __slots__ = ("_context", "_past", "_settled")

    def __init__(self, past: Past) -> None:
        self._past = past
        self._context = Context.create(past.context, _UNBOUNDED)
        self._settled = dict(past.settled)

    @classmethod
    def begin(cls, made: Made, source: str) -> Facts:
        """At the first version of a run."""
        assert made.first is not None, "a first version"
        return cls(_past(made, dict(made.settled), made.first, source))

    @property
    def number(self) -> int:
        """The run version that has been reached."""
        return self._past.number

    def follow(self, made: Made) -> None:
        """The next version. Raises `ContextError` if it does not fit."""
        self._context.apply(made.operations, _UNBOUNDED).adopt()
        move(self._settled, made.settled)
        self._past = _past(made, {}, b"", self._past.source)

    @property
    def past(self) -> Past:
        """The facts at that version."""
        return msgspec.structs.replace(
            self._past, settled=dict(self._settled), context=self._context.pack()
        )


def _past(made: Made, settled: Mapping[int, int], context: bytes, source: str) -> Past:
    digest = made.entry.plan.digest
    return Past(
        made.number,
        made.state,
        made.flags,
        made.at_ms,
        digest,
        settled,
        context,
        source,
        made.schema,
        made.schema_version,
        made.field_versions,
    )


def move(settled: dict[int, int], moved: Iterable[tuple[int, int]]) -> None:
    """Steps come to be settled, or are no longer."""
    for place, code in moved:
        if code == _OPEN:
            settled.pop(place, None)
        else:
            settled[place] = code


def moves(was: Mapping[int, int], now: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
    """What `move` needs to lead from one standing to another."""
    places = sorted({*was, *now})
    return tuple(
        (place, now.get(place, _OPEN)) for place in places if was.get(place) != now.get(place)
    )


def view_past(past: Past, whose: Whose) -> VersionView:
    """As it is shown. A plan only grows, so that of a later version names its steps."""
    steps = whose.entry.steps
    shown, omitted = without_secrets(past.context, whose.entry.plan.secrets)
    settled = past.settled
    return VersionView(
        run_id=whose.run_id,
        flow=whose.flow,
        flow_version=whose.flow_version,
        run_version=past.number,
        state=past.state,
        at_ms=past.at_ms,
        plan_digest=past.plan_digest.hex(),
        flags=past.flags,
        settled=tuple(_standing_of(steps[place].name, settled[place]) for place in sorted(settled)),
        context=shown,
        secrets_omitted=omitted,
        source=past.source,
        context_schema=past.schema,
        context_schema_version=past.schema_version,
        field_versions=past.field_versions,
    )


def _standing_of(step: str, code: int) -> StepStanding:
    state = _STATES[code]
    assert state is not None, "a settled step"
    return StepStanding(step, state)


def view_now(run: Run) -> VersionView:
    """A live run's newest version, as its state says. `at_ms` is 0: the state does not know."""
    head, plan = run.head, run.entry.plan
    names = run.context.names()
    settled = standing(enumerate(run.rows))
    return VersionView(
        run_id=run.id,
        flow=head.flow,
        flow_version=head.flow_version,
        run_version=head.run_version,
        state=head.state,
        at_ms=0,
        plan_digest=plan.digest.hex(),
        flags=head.flags,
        settled=tuple(
            _standing_of(run.entry.steps[place].name, code) for place, code in settled.items()
        ),
        context=run.context.pack([name for name in names if name not in plan.secrets]),
        secrets_omitted=tuple(name for name in names if name in plan.secrets),
        source="memory",
        context_schema=head.context_schema,
        context_schema_version=head.context_schema_version,
        field_versions=head.field_versions,
    )
