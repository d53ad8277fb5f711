"""Questions about runs: typed, frozen answers that can be shown as JSON."""

from __future__ import annotations

import msgspec

from dalsegno.schemas.control import DecisionType
from dalsegno.schemas.outputs import EffectStatus, RunState, StepState
from dalsegno.streams.core.cold import Asked, Cold, open_asks
from dalsegno.streams.core.people.state import Ask, Decided, escalation_id
from dalsegno.streams.core.runstate import NEVER, Run, Stub


class SagaView(msgspec.Struct, frozen=True, kw_only=True):
    """The run is taken back since `began_ms`. `cause`: a code; `detail`: who or what said so."""

    cause: str
    detail: str
    began_ms: int


class QuestionView(msgspec.Struct, frozen=True, kw_only=True):
    """An open question to a person. An empty `step`: about the run. `asked`: `decision`,
    `information`, `approval`, or of the run `gate` or `aside`. `reminders`: sent so far.
    """

    escalation_id: str
    step: str
    asked: str
    reason: str
    answer_by_ms: int
    reminders: int
    package_digest: str


class DecisionView(msgspec.Struct, frozen=True, kw_only=True):
    """A decision that was taken on one of the run's packages."""

    escalation_id: str
    step: str
    decision: DecisionType
    decided_by: str
    reason: str
    at_ms: int


class StepView(msgspec.Struct, frozen=True, kw_only=True):
    """One step. `due_ms` is on live time if `due_live`; 0 without a deadline. `held_by`: the line
    that a held step stands in: `point:<fault point>`, `frozen:<scope>` or `paced`. `undoes`: the
    step that a compensation takes back. `timeout_ms`, `heartbeat_ms`: what its attempts are watched
    by, declared or not.
    """

    step: str
    state: StepState
    epoch: int
    attempt: int
    failures: int
    infra_failures: int
    progress: int
    worker: str
    due_ms: int
    due_live: bool
    reason: str
    detail: str
    missing: tuple[str, ...]
    effects: int
    effects_unknown: int
    held_by: str = ""
    undoes: str = ""
    timeout_ms: int = 0
    heartbeat_ms: int = 0


class ArchivedView(msgspec.Struct, frozen=True, kw_only=True):
    """The run's state is in this segment of the archive, with this digest. `wanted_ms`: since when
    it is to come back, 0 when it is not; `wanted_by`: for which kind of event, or `timer`.
    `trouble`: why it could not.
    """

    segment: str
    digest: str
    size_bytes: int
    archived_ms: int
    wanted_ms: int = 0
    wanted_by: str = ""
    trouble: str = ""


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """A run, live or ended, or a start that was refused, or events that wait for a start.

    `kind`: `run`, `ended`, `refused`, `early`, or `archived` for a live run whose state is in the
    archive: it has `archived`, and neither steps nor context until it is back. `state` is None for
    `refused` and `early`. `context` is a MessagePack map without secret fields; `secrets_omitted`
    names those. `paused_by`: who holds a paused run. `questions` are open, `decisions` were taken,
    the newest last.
    `field_versions`: context fields of another schema version than `context_schema_version`.
    `context_bytes`: names and values of a live run's context, packed; of blobs the references.
    """

    run_id: str
    kind: str
    state: RunState | None
    flow: str = ""
    flow_version: int = 0
    run_version: int = 0
    waiting_for: str = ""
    reason: str = ""
    detail: str = ""
    started_ms: int = 0
    updated_ms: int = 0
    expires_ms: int = 0
    ended_ms: int = 0
    plan_digest: str = ""
    gate: str = ""
    flags: tuple[str, ...] = ()
    steps_left: int = 0
    steps: tuple[StepView, ...] = ()
    effects: int = 0
    effects_unknown: int = 0
    escalations: int = 0
    starts: int = 0
    redone: int = 0
    events_waiting: int = 0
    context: bytes = b""
    secrets_omitted: tuple[str, ...] = ()
    paused_by: str = ""
    saga: SagaView | None = None
    questions: tuple[QuestionView, ...] = ()
    decisions: tuple[DecisionView, ...] = ()
    context_schema: str = ""
    context_schema_version: int = 0
    field_versions: tuple[tuple[str, int], ...] = ()
    context_bytes: int = 0
    archived: ArchivedView | None = None


def view_of(held: Run | Stub | Cold) -> RunView:
    """What is known of it."""
    if isinstance(held, Cold):
        return view_cold(held)
    return view_stub(held) if isinstance(held, Stub) else view_run(held)


def still_open(held: Run | Stub | Cold | None) -> bool:
    """Whether more may come of it: it is live, or reports wait for its start."""
    if isinstance(held, Stub):
        return held.head.state is None and not held.head.refusal
    return held is not None


def view_run(run: Run) -> RunView:
    """A live run as it is now."""
    head = run.head
    secrets = run.entry.plan.secrets
    names = run.context.names()
    saga = head.saga
    return RunView(
        run_id=run.id,
        kind="run",
        state=head.state,
        flow=head.flow,
        flow_version=head.flow_version,
        run_version=head.run_version,
        waiting_for=head.waiting_for,
        detail=head.quarantine,
        started_ms=head.started_ms,
        updated_ms=head.updated_ms,
        expires_ms=0 if head.clock_stopped_ms or head.expires_ms == NEVER else head.expires_ms,
        plan_digest=run.entry.plan.digest.hex(),
        gate=head.gate,
        flags=head.flags,
        steps_left=head.left,
        steps=tuple(_view_step(run, place) for place in range(len(run.rows))),
        effects=head.effects,
        effects_unknown=head.effects_unknown,
        escalations=head.escalations,
        starts=head.starts,
        redone=head.redone,
        events_waiting=len(run.waiting or ()),
        context=run.context.pack([name for name in names if name not in secrets]),
        secrets_omitted=tuple(name for name in names if name in secrets),
        paused_by=head.paused_by,
        saga=None
        if saga is None
        else SagaView(cause=saga.cause, detail=saga.detail, began_ms=saga.began_ms),
        questions=_questions(run),
        decisions=_decisions(run.id, () if head.people is None else head.people.decided),
        context_schema=head.context_schema,
        context_schema_version=head.context_schema_version,
        field_versions=head.field_versions,
        context_bytes=run.context.size_bytes,
    )


def _questions(run: Run) -> tuple[QuestionView, ...]:
    return tuple(_question(run.id, step, ask) for step, ask in open_asks(run))


def _question(run_id: str, step: str, ask: Ask | Asked) -> QuestionView:
    return QuestionView(
        escalation_id=escalation_id(run_id, ask.number),
        step=step,
        asked=ask.asked,
        reason=ask.reason,
        answer_by_ms=ask.answer_by_ms,
        reminders=ask.reminded,
        package_digest=ask.digest.hex(),
    )


def _decisions(run_id: str, decided: tuple[Decided, ...]) -> tuple[DecisionView, ...]:
    return tuple(
        DecisionView(
            escalation_id=escalation_id(run_id, each.number),
            step=each.step,
            decision=each.decision,
            decided_by=each.by,
            reason=each.reason,
            at_ms=each.at_ms,
        )
        for each in decided
    )


def _view_step(run: Run, place: int) -> StepView:
    row = run.rows[place]
    flight, past = row.flight, row.past
    effects = run.journal.get(place) if run.journal is not None else None
    entries = effects.effects if effects is not None else []
    progress = 0
    if flight is not None:
        progress = flight.progress
    elif past is not None:
        progress = past.progress
    step = run.entry.steps[place]
    return StepView(
        step=step.name,
        state=row.state,
        epoch=row.epoch,
        attempt=row.attempt,
        failures=row.failures,
        infra_failures=row.infra,
        progress=progress,
        worker="" if flight is None else flight.worker,
        due_ms=row.due_ms,
        due_live=row.live,
        reason="" if past is None else past.reason,
        detail="" if past is None else past.detail,
        missing=() if past is None else past.missing,
        effects=len(entries),
        effects_unknown=sum(e.entry.status is EffectStatus.UNKNOWN for e in entries),
        held_by=row.repair.by if row.repair is not None and row.state is StepState.HELD else "",
        undoes=_undone_by(run, place),
        timeout_ms=step.timeout_ms,
        heartbeat_ms=step.heartbeat_ms,
    )


def _undone_by(run: Run, place: int) -> str:
    undoes = run.rows[place].undoes
    if undoes is None or undoes.step == place:
        return ""
    return run.entry.steps[undoes.step].name


def view_stub(stub: Stub) -> RunView:
    """What a stub knows."""
    head = stub.head
    kind = "ended" if head.state else "refused" if head.refusal else "early"
    return RunView(
        run_id=stub.id,
        kind=kind,
        state=head.state,
        flow=head.flow,
        flow_version=head.flow_version,
        run_version=head.run_version,
        reason=head.refusal or head.reason,
        detail=head.detail,
        started_ms=head.started_ms,
        updated_ms=head.ended_ms,
        expires_ms=head.until_ms,
        ended_ms=head.ended_ms,
        plan_digest=head.plan_digest.hex(),
        effects_unknown=head.effects_unknown,
        events_waiting=len(stub.waiting or ()),
        context=head.context,
        decisions=_decisions(stub.id, head.decided),
        context_schema=head.context_schema,
        context_schema_version=head.context_schema_version,
        field_versions=head.field_versions,
    )


def view_cold(cold: Cold) -> RunView:
    """What is known of a run in the archive."""
    head = cold.head
    return RunView(
        run_id=cold.id,
        kind="archived",
        state=head.state,
        flow=head.flow,
        flow_version=head.flow_version,
        run_version=head.run_version,
        waiting_for=head.waiting_for,
        started_ms=head.started_ms,
        updated_ms=head.updated_ms,
        expires_ms=0 if head.expires_ms == NEVER else head.expires_ms,
        plan_digest=head.plan_digest.hex(),
        gate=head.gate,
        steps_left=head.left,
        effects=head.effects,
        effects_unknown=head.effects_unknown,
        escalations=head.escalations,
        events_waiting=len(cold.waiting or ()),
        paused_by=head.paused_by,
        context_schema=head.context_schema,
        context_schema_version=head.context_schema_version,
        questions=tuple(_question(cold.id, each.step, each) for each in head.asked),
        archived=ArchivedView(
            segment=head.segment,
            digest=head.digest.hex(),
            size_bytes=head.size,
            archived_ms=head.archived_ms,
            wanted_ms=head.wanted_ms,
            wanted_by=head.wanted_by,
            trouble=head.trouble,
        ),
    )
