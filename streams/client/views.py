"""What a client is shown of a run: frozen values, as its partition's owner holds them."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from dalsegno.schemas import values
from dalsegno.schemas.outputs import RunState, StepState
from dalsegno.schemas.values import Value
from dalsegno.streams.client.errors import RunRefused
from dalsegno.streams.client.outcomes import RunResult
from dalsegno.streams.core import query
from dalsegno.streams.core.faultpoint.standing import PointView
from dalsegno.streams.core.query import DecisionView, QuestionView, SagaView
from dalsegno.streams.core.recovery.holding import POINT
from dalsegno.streams.core.run_table import FINAL_RUNS
from dalsegno.streams.core.versions import VersionView


@dataclass(frozen=True, slots=True)
class StepView:
    """One step. `missing` names context fields that it waits for; `reason` and `detail` say how its
    last attempt ended, if not well. `held_by`: what holds it back, although it could go by its
    plan: `point:<fault point>`, `frozen:<scope>`, `paced`, or empty. `undoes`: the step that it, a
    compensation, takes back.
    """

    step: str
    state: StepState
    epoch: int
    failures: int
    infra_failures: int
    progress: int
    worker: str
    reason: str
    detail: str
    missing: tuple[str, ...]
    effects: int
    effects_unknown: int
    held_by: str
    undoes: str

    @property
    def fault_point(self) -> str:
        """The fault point that it waits for, or an empty text."""
        return self.held_by.removeprefix(POINT) if self.held_by.startswith(POINT) else ""


@dataclass(frozen=True, slots=True)
class RunView:
    """A run at one moment. Times are Unix milliseconds, 0 where there is none.

    `kind`: `run` (live), `archived` (live, its state in the archive until something comes for it:
    without steps and context), `ended`, `refused` (its start was), or `early` (reports came, its
    start did not yet); `state` is None for the last two. `reason` and `detail` say why it ended or
    was refused. `context` lacks the fields of `secrets_omitted`, and is None (`context_omitted`)
    where an ended run's was too large to be kept, or while the run is archived. `position`: the
    events of its partition below this offset are in the view. `saga` is there once the run is being
    taken back. `questions` to people are open, `decisions` of people were taken, the newest last.
    `paused_by`: who holds it.
    `context_versions`: by field of `context`, of the schema that its value is of; with
    `ContextSchema.read` the code's own version.
    """

    run_id: str
    kind: str
    state: RunState | None
    flow: str
    flow_version: int
    run_version: int
    steps: tuple[StepView, ...]
    context: dict[str, Value] | None
    secrets_omitted: tuple[str, ...]
    waiting_for: str
    gate: str
    flags: tuple[str, ...]
    reason: str
    detail: str
    started_ms: int
    updated_ms: int
    expires_ms: int
    ended_ms: int
    effects: int
    effects_unknown: int
    escalations: int
    position: int
    paused_by: str
    saga: SagaView | None
    questions: tuple[QuestionView, ...]
    decisions: tuple[DecisionView, ...]
    context_schema: str
    context_versions: dict[str, int]

    @property
    def context_omitted(self) -> bool:
        """Whether there is a context that this view does not hold."""
        return self.context is None

    @property
    def ended(self) -> bool:
        """Whether the run is over, in whichever of the final states."""
        return self.state is not None and self.state in FINAL_RUNS

    @property
    def succeeded(self) -> bool:
        """Whether the run is over, and well."""
        return self.state is RunState.SUCCEEDED

    @property
    def refusal(self) -> RunRefused | None:
        """Why the service refused to start it, as the error that `wait` raises."""
        if self.kind != "refused":
            return None
        return RunRefused(self.run_id, self.reason, self.detail)

    def step(self, name: str) -> StepView:
        """The step of this name. Raises `KeyError`; an ended run has none any more."""
        for each in self.steps:
            if each.step == name:
                return each
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class RunVersion:
    """A run as it was at one of its versions: the facts that a run version stands for.

    `at_ms`: log time at which it came to be so, 0 where that is not known. `settled`: the steps
    that were completed, skipped or compensated. `context` lacks the fields of `secrets_omitted`.
    `source`: whence the engine has it (`chain`, `memory`). `context_versions`: as in `RunView`.
    """

    run_id: str
    flow: str
    flow_version: int
    run_version: int
    state: RunState
    at_ms: int
    plan_digest: str
    flags: tuple[str, ...]
    settled: dict[str, StepState]
    context: dict[str, Value]
    secrets_omitted: tuple[str, ...]
    source: str
    context_schema: str
    context_versions: dict[str, int]


class _Version(msgspec.Struct):
    version: VersionView


class _Run(msgspec.Struct):
    run: query.RunView
    position: int = 0


class _Runs(msgspec.Struct):
    runs: list[query.RunView]


class _Points(msgspec.Struct):
    fault_points: list[PointView]


def read_run(body: bytes) -> RunView:
    """From an engine's answer. Raises `msgspec.MsgspecError`, `ValueRefusedError`."""
    answer = msgspec.json.decode(body, type=_Run)
    return _view(answer.run, answer.position)


def read_version(body: bytes) -> RunVersion:
    """From an engine's answer. Raises as `read_run`."""
    found = msgspec.json.decode(body, type=_Version).version
    context = values.unpack_map(found.context)
    return RunVersion(
        run_id=found.run_id,
        flow=found.flow,
        flow_version=found.flow_version,
        run_version=found.run_version,
        state=found.state,
        at_ms=found.at_ms,
        plan_digest=found.plan_digest,
        flags=found.flags,
        settled={each.step: each.state for each in found.settled},
        context=context,
        secrets_omitted=found.secrets_omitted,
        source=found.source,
        context_schema=found.context_schema,
        context_versions=_versions(found, context),
    )


def read_runs(body: bytes) -> list[RunView]:
    """From an engine's listing. Raises as `read_run`."""
    return [_view(run, 0) for run in msgspec.json.decode(body, type=_Runs).runs]


def read_points(body: bytes) -> list[PointView]:
    """From an engine's answer. Raises `msgspec.MsgspecError`."""
    return msgspec.json.decode(body, type=_Points).fault_points


def result_of(view: RunView) -> RunResult | None:
    """How the run ended; None while it has not."""
    if view.state is None or not view.ended:
        return None
    return RunResult(
        run_id=view.run_id,
        state=view.state,
        run_version=view.run_version,
        context=view.context,
        context_omitted=view.context_omitted,
        reason=view.reason,
        detail=view.detail,
    )


def _view(run: query.RunView, position: int) -> RunView:
    if run.context:
        context: dict[str, Value] | None = values.unpack_map(run.context)
    else:
        context = None if run.kind in {"ended", "archived"} else {}
    return RunView(
        run_id=run.run_id,
        kind=run.kind,
        state=run.state,
        flow=run.flow,
        flow_version=run.flow_version,
        run_version=run.run_version,
        steps=tuple(map(_step, run.steps)),
        context=context,
        secrets_omitted=run.secrets_omitted,
        waiting_for=run.waiting_for,
        gate=run.gate,
        flags=run.flags,
        reason=run.reason,
        detail=run.detail,
        started_ms=run.started_ms,
        updated_ms=run.updated_ms,
        expires_ms=run.expires_ms,
        ended_ms=run.ended_ms,
        effects=run.effects,
        effects_unknown=run.effects_unknown,
        escalations=run.escalations,
        position=position,
        paused_by=run.paused_by,
        saga=run.saga,
        questions=run.questions,
        decisions=run.decisions,
        context_schema=run.context_schema,
        context_versions=_versions(run, context or {}),
    )


def _versions(run: query.RunView | VersionView, context: dict[str, Value]) -> dict[str, int]:
    newer = dict(run.field_versions)
    return {name: newer.get(name, run.context_schema_version) for name in context}


def _step(step: query.StepView) -> StepView:
    return StepView(
        step=step.step,
        state=step.state,
        epoch=step.epoch,
        failures=step.failures,
        infra_failures=step.infra_failures,
        progress=step.progress,
        worker=step.worker,
        reason=step.reason,
        detail=step.detail,
        missing=step.missing,
        effects=step.effects,
        effects_unknown=step.effects_unknown,
        held_by=step.held_by,
        undoes=step.undoes,
    )
