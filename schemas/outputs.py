"""Records that the service writes: handoffs, answers, transitions, escalations, claims, dead
letters.

What nearly every event makes takes its fields by position too: by keyword, a record of 16 fields
costs seven times as much to make.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from dalsegno.schemas.package import (
    EarlierDecision,
    EffectLine,
    Fact,
    FieldLine,
    FormField,
    Option,
    Silence,
)


class Outcome(StrEnum):
    """What became of an event. Every acknowledged event has exactly one of the five, or waits."""

    APPLIED = "applied"
    DUPLICATE = "duplicate"
    SUPERSEDED = "superseded"
    REFUSED = "refused"
    DEAD_LETTERED = "dead_lettered"


class RunState(StrEnum):
    """State of a run. The last five are final."""

    RUNNING = "running"
    WAITING = "waiting"
    PAUSED = "paused"
    COMPENSATING = "compensating"
    QUARANTINED = "quarantined"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    COMPENSATED = "compensated"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class StepState(StrEnum):
    """State of a step."""

    PENDING = "pending"
    READY = "ready"
    HELD = "held"
    DISPATCHED = "dispatched"
    RUNNING = "running"
    BACKING_OFF = "backing_off"
    MISSING_INFO = "missing_info"
    AWAITING_APPROVAL = "awaiting_approval"
    ESCALATED = "escalated"
    COMPLETED = "completed"
    COMPENSATING = "compensating"
    COMPENSATED = "compensated"
    SKIPPED = "skipped"


class AnswerType(StrEnum):
    """What an answer on the control topic says."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    SUPERSEDED = "superseded"
    REFUSED = "refused"
    CANCELLED = "cancelled"
    ENDED = "ended"


class EffectStatus(StrEnum):
    """What is known of an effect."""

    CONFIRMED = "confirmed"
    UNKNOWN = "unknown"


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An effect that an earlier attempt of the step intended or confirmed."""

    effect: str
    occurrence: int
    key: str
    status: EffectStatus
    epoch: int
    result: bytes = b""


class UndoEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An effect of another step that a compensation has to take back, as far as it was done.

    `key`: the key under which the effect was done, or may have been. `undo_input`: what its intent
    left for whoever takes it back, MessagePack.
    """

    effect: str
    occurrence: int
    key: str
    status: EffectStatus
    epoch: int
    result: bytes = b""
    undo_input: bytes = b""


class FieldVersion(msgspec.Struct, frozen=True, gc=False):
    """A context field whose value is of another schema version than the run began with."""

    field: str
    version: int


class Handoff(msgspec.Struct, frozen=True, gc=False):
    """Gives one attempt of a step to a worker. Headers carry its sequence.

    `inputs` is a MessagePack map of exactly the fields that the step may read. `recovery_key` is
    the same for every attempt; effect keys derive from it. `start_by_ms`: the step may start only
    while the append time of its `StepStarted` is below this. `save`: what the attempt before kept.
    A compensation takes back the step `undoes`: its effects in `undo`, and `wrote`, a MessagePack
    map of what the context holds in the fields that it may write. A question for missing facts has
    them in `form`. `field_versions`: fields of `inputs` and `wrote` whose values are of another
    version of the context schema than `context_schema_version`, the one that the run began with.
    """

    run_id: str
    flow: str
    flow_version: int
    step: str
    epoch: int
    goal: str
    inputs: bytes
    run_version: int
    recovery_key: str
    dispatched_at_ms: int
    start_by_ms: int
    timeout_ms: int
    heartbeat_ms: int
    writes: tuple[str, ...] = ()
    effects: tuple[JournalEntry, ...] = ()
    save: bytes | None = None
    context_schema: str = ""
    context_schema_version: int = 1
    retries: int = 0
    undoes: str = ""
    undoes_completed: bool = False
    undo: tuple[UndoEntry, ...] = ()
    wrote: bytes = b""
    form: tuple[FormField, ...] = ()
    field_versions: tuple[FieldVersion, ...] = ()


class Answer(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Tells a worker or client what became of its report. Key: its reply address.

    `current_epoch` is what superseded the reporter. For `ENDED`, `run_state` is final and `context`
    the MessagePack map of the run's context, left empty (with `context_omitted`) when too large.
    """

    reply_to: str
    run_id: str
    answer: AnswerType
    step: str = ""
    epoch: int = 0
    kind: str = ""
    reason: str = ""
    detail: str = ""
    current_epoch: int = 0
    run_state: RunState | None = None
    run_version: int = 0
    context: bytes = b""
    context_omitted: bool = False


class StepChange(msgspec.Struct, frozen=True, gc=False):
    """One step's change of state within a transition."""

    step: str
    before: StepState
    after: StepState
    epoch: int


class Transition(msgspec.Struct, frozen=True, gc=False):
    """The audit record of one event or timer. Key: the run id.

    `cause` is the event's kind, or `timer:<name>`; `cause_offset` its offset (of the event that
    moved the clock, for a timer). `diff` is a MessagePack map {"added": {...}, "changed": {...},
    "removed": [...]} by path, secret values masked; empty when the context did not change.
    """

    run_id: str
    cause: str
    cause_offset: int
    at_ms: int
    outcome: Outcome
    reason: str
    run_version_before: int
    run_version_after: int
    run_state_before: RunState | None
    run_state_after: RunState | None
    changes: tuple[StepChange, ...] = ()
    step: str = ""
    epoch: int = 0
    actor: str = ""
    detail: str = ""
    diff: bytes = b""


class Escalation(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Asks a person. One is open per run and step; `escalation_id` is derived, not random.

    The blocks stand in the order in which a person needs them: what is asked, by when, what if
    nobody answers; goals; the last valid conclusion; the failure; effects; options; fields;
    evidence; the binding. `partition`, `offset`: of the event that asked. `cause` is equal for
    packages that have the same cause. `package_digest` is what a decision binds itself to.
    `reminder`: 0 for the package itself, n for its nth reminder. `form`: the missing fields, to be
    filled in.
    """

    escalation_id: str
    run_id: str
    flow: str
    flow_version: int
    step: str
    epoch: int
    asked: str
    reason: str
    failure_type: str
    error_class: str
    message: str
    missing_fields: tuple[str, ...]
    advice: str
    goal: str
    attempts: int
    infra_attempts: int
    at_ms: int
    answer_by_ms: int
    run_version: int
    plan_digest: bytes
    values_digest: bytes
    effects: tuple[JournalEntry, ...] = ()
    question: str = ""
    silence: Silence = Silence.NOTHING
    silence_text: str = ""
    run_goal: str = ""
    facts: tuple[Fact, ...] = ()
    evidence: str = ""
    dependency: str = ""
    effect_lines: tuple[EffectLine, ...] = ()
    effects_more: int = 0
    options: tuple[Option, ...] = ()
    fields: tuple[FieldLine, ...] = ()
    partition: int = 0
    offset: int = 0
    cause: str = ""
    earlier: tuple[EarlierDecision, ...] = ()
    reminder: int = 0
    package_digest: bytes = b""
    form: tuple[FormField, ...] = ()


class FaultReport(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a partition has seen of a fault point. Idempotent by (source partition, sequence).

    Outcomes are those since the last report; `in_a_row` counts the failures after the last success
    among them. The rest is as it stands: `waiting` steps of the partition wait for the fault point,
    `running` are out with a permit, `unspent` permits are in hand. `seen`: the number of the last
    state or quota of this fault point that the partition has applied. `offset`, `index`: the
    report's own sequence. `baseline_ms`: the usual span of a step while the fault point was
    healthy. `retry_after_ms`: the longest that the dependency has asked for. `slow`: attempts in a
    row that took more than twice as long as is usual for their step, though nothing failed.
    """

    fault_point: str
    partition: int
    failures: int
    successes: int
    waiting: int
    rtt_ms: int = 0
    last_error_class: str = ""
    offset: int = 0
    index: int = 0
    seen: int = 0
    running: int = 0
    unspent: int = 0
    in_a_row: int = 0
    baseline_ms: int = 0
    retry_after_ms: int = 0
    slow: int = 0


class Claim(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Who owns a partition. In the owners topic (key: the partition) and in the changelog."""

    partition: int
    owner: str
    url: str
    claim_id: str
    rules_known: tuple[int, ...]
    code_version: str
    claimed_at_ms: int


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A record that was not understood or not handled. The Kafka value holds the original bytes;
    this record travels in the `dalsegno-dead-letter` header, beside the original headers.
    """

    topic: str
    partition: int
    offset: int
    at_ms: int
    reason: str
    detail: str
    run_id: str = ""
    kind: str = ""
    requeues: int = 0
