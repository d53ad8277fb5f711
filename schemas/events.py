"""Events that services, workers and clients report about a run. Key: the run id.

Fields that every run event has:

* `run_id`: names the run, 1 to 128 characters; the Kafka key is its UTF-8 bytes.
* `source`: who reports (worker name, service name); information only.
* `sent_at_ms`: the producer's clock in Unix milliseconds; information only, decides nothing.
* `reply_to`: address on the control topic for the answer, or empty when none is wanted.

`step`, `epoch` and `attempt` name an attempt: a managed step reports the epoch of its handoff and
attempt 0; a step that its service runs by itself reports epoch 0 and its own growing attempt
number.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from dalsegno.schemas.plan import Plan, StepPlan


class FailureType(StrEnum):
    """The return contract's word for how a run may go on after a failed attempt."""

    TRANSIENT = "transient"
    DEPENDENCY = "dependency"
    MISSING_INFO = "missing_info"
    INVALID = "invalid"
    PERMANENT = "permanent"
    UNSAFE = "unsafe"


class RunEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What every event of a run carries; see the module's text."""

    run_id: str
    source: str = ""
    sent_at_ms: int = 0
    reply_to: str = ""


class AttemptEvent(RunEvent, frozen=True, kw_only=True, gc=False):
    """An event of one attempt of a step."""

    step: str
    epoch: int
    attempt: int = 0


class RunStarted(RunEvent, frozen=True, kw_only=True, gc=False):
    """A run begins: its plan and its first context.

    `context` is a MessagePack map from field name to value. With `more` set, the plan goes on in
    `PlanExtended` parts and the first step waits for the part that says `last`.
    """

    flow: str
    flow_version: int
    plan: Plan
    context: bytes
    context_schema: str = ""
    context_schema_version: int = 1
    ttl_ms: int = 86_400_000
    risk_flags: tuple[str, ...] = ()
    more: bool = False


class PlanExtended(RunEvent, frozen=True, kw_only=True, gc=False):
    """Further steps for the plan of a live run. One-shot by `extension_id`.

    `expected_plan_digest`, if not empty, must equal the digest of the plan so far.
    """

    extension_id: str
    steps: tuple[StepPlan, ...]
    last: bool = True
    expected_plan_digest: bytes = b""


class StepStarted(AttemptEvent, frozen=True, kw_only=True, gc=False):
    """An attempt begins: its body runs only after this is acknowledged before `start_by`."""

    worker: str = ""
    incarnation: int = 0


class StepProgressed(AttemptEvent, frozen=True, kw_only=True, gc=False):
    """The step's save, private to the step: the next attempt receives the bytes as they are.

    `progress` is the attempt's progress counter; the highest seen stands.
    """

    progress: int
    save: bytes | None = None


class StepCompleted(AttemptEvent, frozen=True, kw_only=True, gc=False):
    """An attempt succeeded. `ops` is a MessagePack array of context operations.

    `expected_run_version`, if given, must be the run's version: compare-and-set.
    `context_schema_version`: of the values that are set whole; 0 leaves fields the version they
    have.
    """

    ops: bytes
    expected_run_version: int | None = None
    risk_flags: tuple[str, ...] = ()
    progress: int = 0
    context_schema_version: int = 0


class StepFailed(AttemptEvent, frozen=True, kw_only=True, gc=False):
    """An attempt failed: the return contract. Advice is advice; the plan's policy decides."""

    failure_type: FailureType
    error_class: str = ""
    message: str = ""
    missing_fields: tuple[str, ...] = ()
    advice: str = ""
    retry_after_ms: int | None = None
    dependency: str = ""
    risk_flags: tuple[str, ...] = ()
    progress: int = 0


class StepReleased(AttemptEvent, frozen=True, kw_only=True, gc=False):
    """A worker took a handoff and gives it back without having started it. Costs no attempt.

    `reason` is a short code, `detail` says it to people.
    """

    reason: str = ""
    detail: str = ""


class EffectIntended(AttemptEvent, frozen=True, kw_only=True, gc=False):
    """Durable before the act. `key` is the idempotency key, the same in every attempt.

    `undo` names the plan's step that takes the effect back; `undo_input` is MessagePack for it.
    """

    effect: str
    occurrence: int
    key: str
    undo: str = ""
    undo_input: bytes = b""


class EffectConfirmed(AttemptEvent, frozen=True, kw_only=True, gc=False):
    """Durable after the act. Further attempts receive `result` (MessagePack) and skip the act."""

    effect: str
    occurrence: int
    result: bytes


class InformationSupplied(RunEvent, frozen=True, kw_only=True, gc=False):
    """Context fields from outside the plan. One-shot by `information_id`.

    `origin` says where the facts come from. `expected_run_version`: compare-and-set.
    `context_schema_version`: as in `StepCompleted`.
    """

    information_id: str
    ops: bytes
    origin: str
    expected_run_version: int | None = None
    context_schema_version: int = 0


class RiskFlagged(RunEvent, frozen=True, kw_only=True, gc=False):
    """A risk flag is set on the run. One-shot by `flag_id`."""

    flag_id: str
    flag: str
    reason: str = ""


class RunPaused(RunEvent, frozen=True, kw_only=True, gc=False):
    """No further step is dispatched until the run is resumed. One-shot by `request_id`."""

    request_id: str
    reason: str = ""


class RunResumed(RunEvent, frozen=True, kw_only=True, gc=False):
    """A paused run goes on. One-shot by `request_id`."""

    request_id: str
    reason: str = ""


class RunCancelled(RunEvent, frozen=True, kw_only=True, gc=False):
    """The run ends as cancelled; attempts under way are told to stop. One-shot by `request_id`."""

    request_id: str
    reason: str = ""
