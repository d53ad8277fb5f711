"""Every metric of the engine: name, kind, meaning, labels. docs/metrics.md is generated from this.

Label values are bounded: each label says by what. Run ids, keys and worker names are never labels.
"""

from __future__ import annotations

from typing import Final

from dalsegno.streams.engine import (
    metrics_archive,
    metrics_blobs,
    metrics_erasing,
    metrics_signing,
    metrics_snapshots,
    metrics_warm,
)
from dalsegno.streams.engine.metric import SECONDS as _SECONDS
from dalsegno.streams.engine.metric import Kind, Metric

__all__ = ["CATALOGUE", "Kind", "Metric"]

_LONG_SECONDS = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)

FLOWS_MAX: Final = 50
"""Flows beyond this many share the label value `other`."""

FIELDS_MAX: Final = 100
"""Context fields near a limit beyond this many share the label value `other`."""

OTHER: Final = "other"

LABELS: Final = {
    "partition": "number of the events partition",
    "state": "of a partition task: new, fencing, restoring, ready, busy, stalled, stopped, closed",
    "outcome": "of an event: applied, duplicate, superseded, refused, dead_lettered",
    "reason": "a short code of our own, never text of a record; at most 100, then `other`",
    "version": "of the installed package: one for each engine",
    "rules": "a number: one for each engine",
    "cause": "class of the error that ended a partition task",
    "verdict": "of the monitor: lost, silent, stuck, replaced",
    "channel": "of outputs: transitions, escalations, control, faults, dead-letters, queue.NAME",
    "fault_point": "name of one that is not healthy; at most 200 for each partition",
    "phase": "of a fault point: open, half_open, ramping",
    "webhook": "name of a target that the policy lists: at most 16",
    "result": "of an attempt: delivered, trouble, refused, gone, error; of a blob: stored, known",
    "store": "that could not be rid of an erased run: archive, log",
    "what": "kind of segment: states (no run needs it), unfinished (a crash left it), superseded, "
    "replaced (a rewritten one counts)",
    "trouble": "kind of failure of the archive's store: unreachable, slow, denied, damaged, …",
    "way": "of a large value: in, out",
    "kind": "of a snapshot's link: base, whole, delta",
    "fault": "what is wrong with a snapshot's link: digest, order, truncated, …",
    "held_by": "what holds a step: freeze, fault point, turn",
    "limit": "of the policy: inline_bytes_max, context_bytes_max, dispatch_bytes_max",
    "field": f"name of a context field near a limit; at most {FIELDS_MAX}, then `other`",
    "flow": f"name of a flow; at most {FLOWS_MAX}, then `other`",
}

EVENTS_APPLIED: Final = Metric(
    "dalsegno_events_read_total",
    Kind.COUNTER,
    "Records of the events topic that went through apply.",
)
OUTCOMES: Final = Metric(
    "dalsegno_events",
    Kind.GAUGE,
    "Records by outcome since the log began, from the state of the partitions owned here.",
    ("partition", "outcome"),
)
WAITING: Final = Metric(
    "dalsegno_events_waiting",
    Kind.GAUGE,
    "Records that wait for their run: with the outcomes they add up to the records read.",
    ("partition",),
)
OUTPUTS: Final = Metric(
    "dalsegno_outputs_total",
    Kind.COUNTER,
    "Outputs of the fold, repeats after a restore included.",
    ("channel",),
)
OUTPUTS_OMITTED: Final = Metric(
    "dalsegno_outputs_omitted_total",
    Kind.COUNTER,
    "Outputs sent empty, with the reason: a value that could not be encoded, was too large, or had "
    "no key in force to be signed with.",
    ("channel", "reason"),
)
REFUSALS: Final = Metric(
    "dalsegno_refusals_total",
    Kind.COUNTER,
    "Events of known runs that were refused, by reason.",
    ("reason",),
)
SUPERSEDED: Final = Metric(
    "dalsegno_epochs_superseded_total",
    Kind.COUNTER,
    "Reports of attempts that had lost their step.",
)
DEAD_LETTERS: Final = Metric(
    "dalsegno_dead_letters_total", Kind.COUNTER, "Records put aside, by reason.", ("reason",)
)
EFFECTS_UNKNOWN: Final = Metric(
    "dalsegno_effects_unknown_total",
    Kind.COUNTER,
    "Effects of unknown outcome that a new attempt or a person was given.",
)
REWORK: Final = Metric(
    "dalsegno_steps_redispatched_total",
    Kind.COUNTER,
    "Handoffs with an epoch above 1: with dalsegno_steps_dispatched_total the rework rate.",
    ("flow",),
)
DISPATCHED: Final = Metric("dalsegno_steps_dispatched_total", Kind.COUNTER, "Handoffs.", ("flow",))
UNSTARTED: Final = Metric(
    "dalsegno_steps_unstarted_total",
    Kind.COUNTER,
    "Handoffs that nobody started in time, or that a worker gave back: most of a flow's mean that "
    "no worker can run it.",
    ("flow",),
)
NEAR_LIMIT: Final = Metric(
    "dalsegno_context_near_limit_total",
    Kind.COUNTER,
    "Writes that left a context within a fifth of a limit of the policy: by its largest field, or "
    "the value itself.",
    ("limit", "flow", "field"),
)
CONFLICTS: Final = Metric(
    "dalsegno_state_conflicts_total",
    Kind.COUNTER,
    "Superseded and refused events of known runs: per event the state-conflict rate.",
    ("flow",),
)
RECOVERY: Final = Metric(
    "dalsegno_recovery_seconds",
    Kind.HISTOGRAM,
    "From a step's first failure to its completion, by append times: its mean is the MTTR.",
    ("flow",),
    _LONG_SECONDS,
)
ESCALATIONS: Final = Metric(
    "dalsegno_escalations_total", Kind.COUNTER, "Questions put to people.", ("flow",)
)
ESCALATED_AGAIN: Final = Metric(
    "dalsegno_escalations_again_total",
    Kind.COUNTER,
    "Escalations of a step that was escalated before: with the total, how clear they are.",
    ("flow",),
)
REMINDERS: Final = Metric(
    "dalsegno_escalation_reminders_total",
    Kind.COUNTER,
    "Reminders of questions that nobody had answered.",
    ("flow",),
)
DECIDED: Final = Metric(
    "dalsegno_escalation_decision_seconds",
    Kind.HISTOGRAM,
    "From a question to the decision that was taken, by append times.",
    ("flow",),
    _LONG_SECONDS,
)
LAG: Final = Metric(
    "dalsegno_lag_records",
    Kind.GAUGE,
    "Records between the fold and the log's end.",
    ("partition",),
)
BACKLOG_AGE: Final = Metric(
    "dalsegno_backlog_age_seconds",
    Kind.GAUGE,
    "For how long the fold has not been at the log's end.",
    ("partition",),
)
PARTITIONS: Final = Metric(
    "dalsegno_partitions", Kind.GAUGE, "Partitions assigned to this engine, by state.", ("state",)
)
PARTITIONS_EXPECTED: Final = Metric(
    "dalsegno_partitions_expected",
    Kind.GAUGE,
    "Partitions of the events topic: so many all engines together must have.",
)
BUILD: Final = Metric(
    "dalsegno_build_info",
    Kind.GAUGE,
    "Always 1: which release this engine is, and up to which rules it knows.",
    ("version", "rules"),
)
STOPS: Final = Metric(
    "dalsegno_partition_stops_total",
    Kind.COUNTER,
    "Partitions that wait for a person.",
    ("reason",),
)
REBUILDS: Final = Metric(
    "dalsegno_partition_rebuilds_total",
    Kind.COUNTER,
    "Partition tasks that ended and began again from the last checkpoint.",
    ("cause",),
)
RESTORED: Final = Metric(
    "dalsegno_restore_progress_ratio",
    Kind.GAUGE,
    "Share of the changelog read back.",
    ("partition",),
)
CHECKPOINT_AGE: Final = Metric(
    "dalsegno_checkpoint_age_seconds",
    Kind.GAUGE,
    "Age of the oldest change that is not in a checkpoint; 0 if there is none.",
    ("partition",),
)
CHECKPOINT_TIME: Final = Metric(
    "dalsegno_checkpoint_seconds", Kind.HISTOGRAM, "From capture to commit.", (), _SECONDS
)
CHECKPOINT_BYTES: Final = Metric(
    "dalsegno_checkpoint_bytes_total", Kind.COUNTER, "Bytes written to the changelog."
)
CHECKPOINT_RECORDS: Final = Metric(
    "dalsegno_checkpoint_records_total", Kind.COUNTER, "Records written to the changelog."
)
RUNS_OPEN: Final = Metric(
    "dalsegno_runs_open", Kind.GAUGE, "Runs that have not ended.", ("partition",)
)
STEPS_RUNNING: Final = Metric(
    "dalsegno_steps_watched", Kind.GAUGE, "Running attempts that are watched.", ("partition",)
)
STEPS_WAITING: Final = Metric(
    "dalsegno_handoffs_waiting",
    Kind.GAUGE,
    "Handoffs that were sent and not started.",
    ("partition",),
)
STEPS_SUSPECT: Final = Metric(
    "dalsegno_steps_suspect",
    Kind.GAUGE,
    "Running attempts that are silent beyond the lower threshold.",
    ("partition",),
)
CANARY_AGE: Final = Metric(
    "dalsegno_monitor_canary_age_seconds",
    Kind.GAUGE,
    "Since when the monitor has read no canary of its own: beyond some seconds it is deaf.",
    ("partition",),
)
VERDICTS: Final = Metric(
    "dalsegno_monitor_verdicts",
    Kind.GAUGE,
    "Verdicts appended since the partition was taken over.",
    ("partition", "verdict"),
)
STRAYS: Final = Metric(
    "dalsegno_heartbeats_stray",
    Kind.GAUGE,
    "Heartbeats for attempts that are not in flight, and records that could not be read.",
    ("partition",),
)
PRODUCER_SKEW: Final = Metric(
    "dalsegno_producer_clock_skew_seconds",
    Kind.GAUGE,
    "The largest error of a producer's clock; it decides nothing.",
    ("partition",),
)
PRODUCERS_FROZEN: Final = Metric(
    "dalsegno_producer_clocks_frozen",
    Kind.GAUGE,
    "Producers whose clock stands still while they beat.",
    ("partition",),
)
MONITOR_FAILURES: Final = Metric(
    "dalsegno_monitor_failures_total", Kind.COUNTER, "Monitors that ended with an error."
)
FAULT_POINT_PHASE: Final = Metric(
    "dalsegno_fault_point_phase",
    Kind.GAUGE,
    "1 for the phase that a fault point of this engine is in: open, half_open or ramping.",
    ("fault_point", "phase"),
)
FAULT_POINT_WINDOW: Final = Metric(
    "dalsegno_fault_point_window",
    Kind.GAUGE,
    "Attempts that may be out on a fault point at once; none while it is healthy.",
    ("fault_point",),
)
FAULT_POINT_WAITING: Final = Metric(
    "dalsegno_fault_point_waiting",
    Kind.GAUGE,
    "Steps that wait for a fault point.",
    ("fault_point",),
)
FAULT_POINT_OUT: Final = Metric(
    "dalsegno_fault_point_out",
    Kind.GAUGE,
    "Permits of a fault point in use, in hand or on their way.",
    ("fault_point",),
)
FAULTS_REFUSED: Final = Metric(
    "dalsegno_faults_refused",
    Kind.GAUGE,
    "Records of the faults topic that were refused, since its log began.",
    ("partition",),
)
STEPS_HELD: Final = Metric(
    "dalsegno_steps_held",
    Kind.GAUGE,
    "Steps that could go by their plan and stand in a line.",
    ("partition", "held_by"),
)
RECOVERY_ATTEMPTS: Final = Metric(
    "dalsegno_recovery_attempts",
    Kind.GAUGE,
    "Further attempts of steps that are dispatched or running.",
    ("partition",),
)
RECOVERY_FROZEN: Final = Metric(
    "dalsegno_recovery_frozen_seconds",
    Kind.GAUGE,
    "Since when the oldest freeze holds recovery, by log time; 0 when nothing is frozen.",
    ("partition",),
)
MONITOR_RESTARTS: Final = Metric(
    "dalsegno_monitor_restarts_total",
    Kind.COUNTER,
    "Monitors that were begun anew after an error; one that fails too often stays off.",
)
WAITS_UNOWNED: Final = Metric(
    "dalsegno_waits_unowned",
    Kind.GAUGE,
    "Runs and steps that wait without owner, deadline or next action, by the last walk: always 0.",
    ("partition",),
)
RECONCILER_FAILURES: Final = Metric(
    "dalsegno_reconciler_failures_total",
    Kind.COUNTER,
    "Walks over a partition's runs that ended with an error.",
)
SERVICE_FAILURES: Final = Metric(
    "dalsegno_service_failures_total",
    Kind.COUNTER,
    "Services beside the partitions that ended with an error and began anew.",
)
WEBHOOK_POSTS: Final = Metric(
    "dalsegno_webhook_posts_total",
    Kind.COUNTER,
    "Attempts to post a package for people.",
    ("webhook", "result"),
)
WEBHOOK_DROPPED: Final = Metric(
    "dalsegno_webhook_dropped_total",
    Kind.COUNTER,
    "Packages that were not delivered: overtaken (answered, asked again or over meanwhile) or"
    " given_up.",
    ("webhook", "reason"),
)
WEBHOOK_WAITING: Final = Metric(
    "dalsegno_webhook_undelivered",
    Kind.GAUGE,
    "Packages that wait to be delivered by this engine, of each partition the first 256.",
    ("webhook",),
)
WEBHOOK_OLDEST: Final = Metric(
    "dalsegno_webhook_oldest_seconds",
    Kind.GAUGE,
    "Age of the oldest package that waits to be delivered; 0 when none does.",
    ("webhook",),
)
WEBHOOK_GONE: Final = Metric(
    "dalsegno_webhook_gone",
    Kind.GAUGE,
    "1 for a target that has said that it is gone: nothing is posted to it any more.",
    ("webhook",),
)
LOOP_LAG: Final = Metric(
    "dalsegno_event_loop_lag_seconds",
    Kind.HISTOGRAM,
    "How late the event loop wakes.",
    (),
    _SECONDS,
)
MEMORY: Final = Metric(
    "dalsegno_resident_memory_bytes", Kind.GAUGE, "Resident memory of the process."
)
GROUP_SILENCE: Final = Metric(
    "dalsegno_group_silence_seconds",
    Kind.GAUGE,
    "Since when the consumer group has not heard us although its broker answers.",
)

_PARTS: Final = (
    metrics_archive,
    metrics_blobs,
    metrics_erasing,
    metrics_signing,
    metrics_snapshots,
    metrics_warm,
)
_ALL: Final = [value for names in (globals(), *map(vars, _PARTS)) for value in names.values()]
CATALOGUE: Final = tuple(value for value in _ALL if isinstance(value, Metric))
