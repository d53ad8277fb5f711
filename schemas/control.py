"""Control kinds: only the service and the console write them, each under a keyed MAC.

Kinds with `partition` go to that partition of the events topic; the others to their run's.
Each is one-shot by an id, or monotone by `number` (a lower or equal one is a duplicate).
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from dalsegno.schemas.plan import RetryPolicy


class Verdict(StrEnum):
    """What the monitor found about an attempt."""

    LOST = "lost"
    SILENT = "silent"
    STUCK = "stuck"
    REPLACED = "replaced"


class BreakerState(StrEnum):
    """State of a fault point's circuit breaker."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class DecisionType(StrEnum):
    """What a person decided."""

    RETRY = "retry"
    SUPPLY = "supply"
    EDIT = "edit"
    SKIP = "skip"
    COMPENSATE = "compensate"
    APPROVE = "approve"
    REJECT = "reject"
    CANCEL = "cancel"


class ControlEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What every control kind carries: who wrote it and that writer's clock (information only)."""

    source: str = ""
    sent_at_ms: int = 0


class PartitionControl(ControlEvent, frozen=True, kw_only=True, gc=False):
    """A control kind about one partition; `number` grows with each event of kind and subject."""

    partition: int
    number: int


class RunControl(ControlEvent, frozen=True, kw_only=True, gc=False):
    """A control kind about one run."""

    run_id: str


class ClockTick(PartitionControl, frozen=True, kw_only=True, gc=False):
    """Time passes: moves log time by its append time, and live time by at most the policy's cap."""


class StallSuspected(RunControl, frozen=True, kw_only=True, gc=False):
    """A verdict of the monitor on one attempt, with its evidence. One-shot by (step, epoch,
    verdict).

    `events_offset`: the monitor had read the events up to here (exclusive).
    `heartbeats_at_ms`: append time of the last heartbeat record it had read.
    `elapsed_ms`, `threshold_ms`: on the monitor's partition clock.
    """

    step: str
    epoch: int
    verdict: Verdict
    events_offset: int
    heartbeats_at_ms: int
    elapsed_ms: int = 0
    threshold_ms: int = 0
    worker: str = ""
    incarnation: int = 0
    evidence: str = ""


class FaultPointChanged(PartitionControl, frozen=True, kw_only=True, gc=False):
    """State of a fault point, as its actor sees it."""

    fault_point: str
    state: BreakerState
    window: int
    reason: str = ""


class QuotaGranted(PartitionControl, frozen=True, kw_only=True, gc=False):
    """Permits for waiting steps of a fault point; they lapse after `lease_ms` without blame."""

    fault_point: str
    permits: int
    lease_ms: int


class RecoveryFrozen(PartitionControl, frozen=True, kw_only=True, gc=False):
    """No recovery is dispatched in the scope (empty: everything) until it is released."""

    flow: str = ""
    fault_point: str = ""
    reason: str = ""


class RecoveryReleased(PartitionControl, frozen=True, kw_only=True, gc=False):
    """Recovery goes on in the scope: `rate_per_s` dispatches a second (0: as windows say)."""

    flow: str = ""
    fault_point: str = ""
    rate_per_s: int = 0
    reason: str = ""


class RunRestored(RunControl, frozen=True, kw_only=True, gc=False):
    """A cold run comes back from the archive, with what its stub's digest stands for.

    `absent`: the cluster has never heard of it, and takes it from another one's archive; `parts`
    has its plan too. `trouble`: it cannot be brought back, and why; `parts` is empty then.
    """

    restore_id: str
    parts: bytes
    digest: bytes
    absent: bool = False
    trouble: str = ""


class DecisionKey(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The public half of a key that a person signs decisions with. `holder`: whose it is.

    `flows`, `decisions`: what the holder may decide about, and how; empty: everything. All keys of
    one holder have the same rights.
    """

    key_id: str
    public_key: bytes
    holder: str
    flows: tuple[str, ...] = ()
    decisions: tuple[DecisionType, ...] = ()


class Webhook(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where packages for people are posted as they come up.

    `key_id`: of the secret that signs them, in the settings of the engines. `flows`: only theirs;
    empty: all. An answer is waited for `timeout_ms`. After a failure the next attempt comes after
    `retry_initial_ms`, then twice as long each time up to `retry_max_ms`, `attempts_max` in all for
    one package.
    """

    name: str
    url: str
    key_id: str
    flows: tuple[str, ...] = ()
    timeout_ms: int = 10_000
    retry_initial_ms: int = 1_000
    retry_max_ms: int = 900_000
    attempts_max: int = 300


class RegistryId(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What an id of the schema registry stands for: the fingerprint of a schema of ours."""

    id: int
    fingerprint: bytes


class HealthCheck(StrEnum):
    """How a dependency is asked whether it is well, before anything is resumed on it."""

    NONE = "none"
    HTTP = "http"
    TCP = "tcp"
    GRPC = "grpc"
    FUNCTION = "function"


class Dependency(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is known of a service that steps depend on, by the name that plans use.

    `target`: a URL for `HTTP`, `host:port` for `TCP`, `host:port` or `host:port/service` for
    `GRPC`, `package.module:function` for `FUNCTION`. It is asked each `interval_ms` while the
    breaker is open, and has `timeout_ms` to answer. `by_class`: failures are counted for each error
    class apart. `window_max`: attempts that may ever be out on it at once during a recovery.
    """

    name: str
    check: HealthCheck = HealthCheck.NONE
    target: str = ""
    interval_ms: int = 1_000
    timeout_ms: int = 1_000
    by_class: bool = False
    window_max: int = 10_000


class Policy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Settings that decide anything, in the log so that every fold agrees. Times in milliseconds.

    `queues` lists what plans may name. `schemas` lists fingerprints of event schemas in force
    (empty: all that the code's built-in contract has); `mac_keys` the ids of MAC keys in force
    (empty: any key that the settings have). `decision_keys`: who may decide (empty: nobody).
    `reminder_first_ms`: after it the first reminder of a package that nobody has answered; each
    further one waits twice as long, `reminders_max` in all. `dependencies`: those of which more is
    known than their name. A permit of a fault point is good for `quota_lease_ms`; a partition
    reports about one at most each `fault_report_ms`. `recovery_width_max`: further attempts that
    may be in flight on a partition (0: no bound). Before a person is asked, a run is brought back
    `run_recoveries_max` times, and `window_recoveries_max` times in one `recovery_window_ms`.
    `freeze_stops_clocks`: a run that a freeze holds back does not expire. `supplier_queue`: who is
    asked for missing facts that no step supplies (empty: a person); a step that supplies them is
    run again at most `supplier_reruns_max` times in a run, and after `supplier_wait_ms` without the
    facts a person is asked. `registry_ids`: what ids in the Confluent wire format stand for (empty:
    only single-object encoding is read). `webhooks`: who is told of packages for people.
    An ended run answers for `stub_keep_ms`, or for as long as its final state has in
    `keep_succeeded_ms` to `keep_expired_ms` (0: as the others).
    """

    queues: tuple[str, ...] = ("default",)
    schemas: tuple[bytes, ...] = ()
    mac_keys: tuple[str, ...] = ()
    start_limit_ms: int = 30_000
    start_margin_ms: int = 2_000
    live_cap_ms: int = 3_000
    verdict_age_ms: int = 60_000
    redispatch_initial_ms: int = 1_000
    redispatch_max_ms: int = 60_000
    retry_after_max_ms: int = 3_600_000
    early_events_max: int = 64
    early_bytes_max: int = 262_144
    early_wait_ms: int = 60_000
    stub_keep_ms: int = 86_400_000
    person_wait_ms: int = 259_200_000
    steps_max: int = 10_000
    context_bytes_max: int = 8_388_608
    inline_bytes_max: int = 524_288
    save_bytes_max: int = 262_144
    effects_max: int = 10_000
    dispatch_bytes_max: int = 921_600
    step_concurrency_max: int = 1_000
    retry_default: RetryPolicy = RetryPolicy()
    decision_keys: tuple[DecisionKey, ...] = ()
    reminder_first_ms: int = 3_600_000
    reminders_max: int = 5
    dependencies: tuple[Dependency, ...] = ()
    quota_lease_ms: int = 10_000
    fault_report_ms: int = 25
    recovery_width_max: int = 1_000
    run_recoveries_max: int = 1_000
    window_recoveries_max: int = 200
    recovery_window_ms: int = 600_000
    freeze_stops_clocks: bool = True
    supplier_queue: str = ""
    supplier_reruns_max: int = 0
    supplier_wait_ms: int = 600_000
    registry_ids: tuple[RegistryId, ...] = ()
    webhooks: tuple[Webhook, ...] = ()
    keep_succeeded_ms: int = 0
    keep_failed_ms: int = 0
    keep_compensated_ms: int = 0
    keep_cancelled_ms: int = 0
    keep_expired_ms: int = 0


class PolicySet(PartitionControl, frozen=True, kw_only=True, gc=False):
    """The partition's policy from here on."""

    policy: Policy


class RulesChanged(PartitionControl, frozen=True, kw_only=True, gc=False):
    """The fold decides by these rules from here on."""

    rules_version: int


class DecisionMade(RunControl, frozen=True, kw_only=True, gc=False):
    """A person's decision, bound to what was shown. One-shot by `decision_id`.

    `package_digest` is that of the package that the person saw. `ops`: context operations for
    supply, edit and skip. `bulk_id` names the list that the decision was part of, if it was.
    """

    decision_id: str
    escalation_id: str
    decision: DecisionType
    decided_by: str
    reason: str
    step: str = ""
    ops: bytes = b""
    plan_digest: bytes = b""
    values_digest: bytes = b""
    expected_run_version: int | None = None
    package_digest: bytes = b""
    bulk_id: str = ""


class ArchiveConfirmed(PartitionControl, frozen=True, kw_only=True, gc=False):
    """A segment is archived, read back and verified: what it holds may leave the tiers above.

    Of events, or of the states of runs: `run_digests` are those of their parts, in the order of
    `run_ids`: the number of a layout (u8), then the SHA-256 of the parts in that layout. A run
    leaves if its parts still have that digest.
    """

    segment: str
    digest: bytes
    first_offset: int
    last_offset: int
    run_ids: tuple[str, ...] = ()
    run_digests: tuple[bytes, ...] = ()


class ErasureRequested(RunControl, frozen=True, kw_only=True, gc=False):
    """Everything about the run is to leave every tier. One-shot by `erasure_id`."""

    erasure_id: str
    reason: str
    requested_by: str


class ErasedFrom(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What an erasure has removed from one store, and how much of it; `detail` in words."""

    store: str
    removed: int = 0
    detail: str = ""


class ErasureConfirmed(PartitionControl, frozen=True, kw_only=True, gc=False):
    """The owner has removed a run from the stores beside the log.

    `run_digest`: SHA-256 of the run's id, which is named no more. Monotone by `number` for each
    digest. `gone_by_ms`: when Kafka's logs will have forgotten the run, by the settings of the
    topics as they were then; 0: no date, as some topic keeps it for ever.
    """

    run_digest: bytes
    stores: tuple[ErasedFrom, ...] = ()
    gone_by_ms: int = 0
