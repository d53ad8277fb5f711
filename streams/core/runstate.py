"""What the fold remembers of a run: a header, rows of steps, and what hangs on them.

Rows and flights are never changed in place once adopted: a unit works on copies (`draft.py`), so
what is not adopted never was. Times are Unix milliseconds of the partition's log time, except
`due_ms` of a row with `live`, which is live time.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dalsegno.schemas.outputs import JournalEntry, RunState, StepState
from dalsegno.streams.core.context import Context
from dalsegno.streams.core.people.state import Decided, People
from dalsegno.streams.core.plan_store import PlanEntry
from dalsegno.streams.core.recovery.damage import Damage
from dalsegno.streams.core.rows import StepRow
from dalsegno.streams.core.run_table import FINAL_RUNS
from dalsegno.streams.core.saga.state import Saga
from dalsegno.streams.core.step_table import MOVES

# Later than any time that a log can have.
NEVER: Final = 1 << 62

# Groups of step states that the header counts, so that nothing has to walk the steps.
IDLE, GOING, FLYING, BACKING, BLOCKED, ASKING, DONE, HOLDING = range(8)
GROUPS: Final = 8
GROUP: Final[dict[StepState, int]] = {
    StepState.PENDING: IDLE,
    StepState.READY: GOING,
    StepState.HELD: HOLDING,
    StepState.DISPATCHED: FLYING,
    StepState.RUNNING: FLYING,
    StepState.BACKING_OFF: BACKING,
    StepState.ESCALATED: BLOCKED,
    StepState.AWAITING_APPROVAL: BLOCKED,
    StepState.MISSING_INFO: ASKING,
    # What is out is its compensation, a step of its own.
    StepState.COMPENSATING: IDLE,
    StepState.COMPLETED: DONE,
    StepState.COMPENSATED: DONE,
    StepState.SKIPPED: DONE,
}


# How many rows a page of the changelog holds.
PAGE_STEPS: Final = 16

# For every move that a rule allows: the groups that a step leaves and enters.
GROUPS_OF_MOVE: Final[dict[StepState, dict[StepState, tuple[int, int]]]] = {
    before: {after: (GROUP[before], GROUP[after]) for after in sorted(MOVES[before])}
    for before in StepState
}


class RunHead(msgspec.Struct, array_like=True, kw_only=True, gc=False):
    """The run's header part.

    `tally[g]` counts the steps of group g (see `GROUP`). `missing` lists the positions of steps
    that wait for information. `gate` names why no further step starts, or is empty; `gate_due_ms`
    is a person's deadline for it. `clock_stopped_ms` is when the time to live was stopped, or 0.
    `run_version` grows when facts change: context, plan, finished steps, flags, the run's state.
    `people`: open questions about the run, and decisions; None while there were none. `damage`:
    from the first lost attempt until all is mended. `held_by`: the line that a step stood in last.
    `recovering`: further attempts and compensations in flight. `recoveries`: how often the run was
    brought back, and of these `window_count` since `window_ms`. `reruns`: of completed steps, for
    missing facts.
    `handed_over`: a person was asked when the time to live was over. `paused_by`: who holds it.
    `field_versions`: sorted, of context fields of another schema version than
    `context_schema_version`.
    """

    flow: str
    flow_version: int
    state: RunState
    run_version: int
    start_digest: bytes
    started_ms: int
    expires_ms: int
    ttl_ms: int
    left: int
    tally: list[int]
    reply_to: str = ""
    trace: str = ""
    context_schema: str = ""
    context_schema_version: int = 1
    waiting_for: str = ""
    paused: bool = False
    plan_open: bool = False
    gate: str = ""
    gate_due_ms: int = 0
    clock_stopped_ms: int = 0
    flags: tuple[str, ...] = ()
    missing: tuple[int, ...] = ()
    effects: int = 0
    effects_unknown: int = 0
    starts: int = 0
    redone: int = 0
    escalations: int = 0
    seen_from: int = 0
    updated_ms: int = 0
    quarantine: str = ""
    people: People | None = None
    saga: Saga | None = None
    damage: Damage | None = None
    held_by: str = ""
    recovering: int = 0
    recoveries: int = 0
    window_ms: int = 0
    window_count: int = 0
    reruns: int = 0
    handed_over: bool = False
    paused_by: str = ""
    field_versions: tuple[tuple[str, int], ...] = ()


_GROUNDED: Final = FINAL_RUNS | {RunState.QUARANTINED}


def aloft(head: RunHead) -> int:
    """Attempts in flight that clock and monitor follow: none of a run that ended or was put aside.

    The rows of a quarantined run keep theirs, for reports that wait and a person's retry.
    """
    return 0 if head.state in _GROUNDED else head.tally[FLYING]


def recovering(head: RunHead) -> int:
    """Further attempts in flight, as the partition's pace counts them."""
    return 0 if head.state in _GROUNDED else head.recovering


def in_lines(head: RunHead) -> bool:
    """Whether steps of the run stand in lines: none of a run that was put aside does."""
    return head.tally[HOLDING] > 0 and head.state not in _GROUNDED


class Effect(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An entry of a step's journal, and the epoch of its first intent (the entry has the last)."""

    entry: JournalEntry
    intended_epoch: int
    undo: str = ""
    undo_input: bytes = b""


class StepJournal:
    """The effects of one step, in the order of their first intent."""

    __slots__ = ("effects", "places")

    def __init__(self, effects: list[Effect]) -> None:
        self.effects = effects
        self.places = {
            (e.entry.effect, e.entry.occurrence): place for place, e in enumerate(effects)
        }

    def find(self, effect: str, occurrence: int) -> int | None:
        """The place of an effect in the journal."""
        return self.places.get((effect, occurrence))

    def put(self, place: int, effect: Effect) -> None:
        """Replaces an entry, or appends one when `place` is the end."""
        if place == len(self.effects):
            self.effects.append(effect)
            self.places[effect.entry.effect, effect.entry.occurrence] = place
        else:
            self.effects[place] = effect


class Waiting(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A record that waits for its run, as it came. `event` is MessagePack of its class `kind`."""

    offset: int
    at_ms: int
    kind: str
    event: bytes
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...]


# Reason and detail of a refused one-shot request.
Refusal = tuple[str, str]


class Run:
    """A live run, in memory.

    `logs`, `lives`, `ready` are heaps derived from the rows: of deadlines as (ms, position), and of
    positions of steps that could not be dispatched yet. Entries are checked against the rows
    before they are used, so one too many does no harm. `seen` holds one-shot ids, oldest first,
    with the answer of those that were refused. `kept` is set once a part has been captured.
    """

    __slots__ = (
        "context",
        "entry",
        "head",
        "id",
        "journal",
        "kept",
        "live_due",
        "lives",
        "log_due",
        "logs",
        "ready",
        "rows",
        "saves",
        "seen",
        "waiting",
    )

    def __init__(
        self, run_id: str, head: RunHead, entry: PlanEntry, rows: list[StepRow], context: Context
    ) -> None:
        self.id = run_id
        self.head = head
        self.entry = entry
        self.rows = rows
        self.context = context
        self.journal: dict[int, StepJournal] | None = None
        self.saves: dict[int, bytes] | None = None
        self.seen: dict[str, Refusal | None] | None = None
        self.waiting: list[Waiting] | None = None
        self.logs: list[tuple[int, int]] | None = None
        self.lives: list[tuple[int, int]] | None = None
        self.ready: list[int] | None = None
        self.log_due = NEVER
        self.live_due = NEVER
        self.kept = False


# Effects of unknown outcome that a stub tells apart, 14 bytes each. A run leaves few, if any.
UNKNOWN_MAX: Final = 256


class StubHead(msgspec.Struct, array_like=True, kw_only=True, gc=False):
    """What is left of a run that ended, or known of one that has not started.

    `state` is final for a run that ended and None otherwise; `refusal` says why its start was
    refused. `until_ms`: the stub goes then. `last_step`, `last_epoch`: the report that ended the
    run. `request_id`: of the cancel. `strays`: effects intended after the end, a person was told.
    `context` is the final context without secrets, kept while it is small. `effects_unknown` falls
    when an effect is confirmed that `unknown` lists (its first `UNKNOWN_MAX`, as `effect_mark`s).
    `decided`: the last decisions of people. `context_schema` and the versions are of `context`, as
    in `RunHead`.
    """

    until_ms: int
    state: RunState | None = None
    refusal: str = ""
    detail: str = ""
    flow: str = ""
    flow_version: int = 0
    run_version: int = 0
    start_digest: bytes = b""
    plan_digest: bytes = b""
    started_ms: int = 0
    ended_ms: int = 0
    reason: str = ""
    last_step: str = ""
    last_epoch: int = 0
    request_id: str = ""
    effects_unknown: int = 0
    context: bytes = b""
    strays: tuple[str, ...] = ()
    unknown: tuple[bytes, ...] = ()
    decided: tuple[Decided, ...] = ()
    context_schema: str = ""
    context_schema_version: int = 0
    field_versions: tuple[tuple[str, int], ...] = ()


class Stub:
    """A stub in memory, while it is touched or has waiting events."""

    __slots__ = ("head", "id", "kept", "waiting")

    def __init__(self, run_id: str, head: StubHead) -> None:
        self.id = run_id
        self.head = head
        self.waiting: list[Waiting] | None = None
        self.kept = False

    @property
    def log_due(self) -> int:
        """When the stub goes, log time."""
        return self.head.until_ms

    @property
    def live_due(self) -> int:
        """A stub has nothing that live time could end."""
        return NEVER
