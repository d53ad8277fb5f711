"""Sets the gauges of the present state, each time somebody looks."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

from dalsegno import __version__
from dalsegno.schemas.outputs import Outcome
from dalsegno.streams.core.controls import RULES_KNOWN
from dalsegno.streams.core.faultpoint.actors import FaultPoints
from dalsegno.streams.core.faultpoint.point import Phase
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.engine import (
    metrics_archive,
    metrics_signing,
    metrics_snapshots,
    metrics_warm,
)
from dalsegno.streams.engine import metrics_catalogue as catalogue
from dalsegno.streams.engine.beside import Beside
from dalsegno.streams.engine.metrics import EngineMetrics
from dalsegno.streams.engine.monitor import MonitorFigures
from dalsegno.streams.engine.ownership import Ownership
from dalsegno.streams.engine.task import RUNNING, PartitionTask, TaskState
from dalsegno.streams.engine.warm_partition import WarmPartition

_PER_PARTITION = (
    catalogue.OUTCOMES,
    catalogue.WAITING,
    metrics_signing.UNSIGNED,
    catalogue.LAG,
    catalogue.BACKLOG_AGE,
    catalogue.RESTORED,
    catalogue.CHECKPOINT_AGE,
    catalogue.RUNS_OPEN,
    catalogue.STEPS_RUNNING,
    catalogue.STEPS_WAITING,
    catalogue.STEPS_SUSPECT,
    catalogue.CANARY_AGE,
    catalogue.VERDICTS,
    catalogue.STRAYS,
    catalogue.PRODUCER_SKEW,
    catalogue.PRODUCERS_FROZEN,
    catalogue.FAULT_POINT_PHASE,
    catalogue.FAULT_POINT_WINDOW,
    catalogue.FAULT_POINT_WAITING,
    catalogue.FAULT_POINT_OUT,
    catalogue.FAULTS_REFUSED,
    catalogue.WAITS_UNOWNED,
    catalogue.STEPS_HELD,
    catalogue.RECOVERY_ATTEMPTS,
    catalogue.RECOVERY_FROZEN,
    metrics_warm.WARM_BYTES,
    metrics_warm.WARM_RUNS,
    metrics_warm.WARM_DISK,
    metrics_warm.WARM_UNSAVED,
    metrics_warm.WARM_STALLED,
    metrics_archive.ARCHIVE_BACKLOG,
    metrics_archive.ARCHIVE_HOLDS,
    metrics_snapshots.SNAPSHOT_OPTIMUM,
    metrics_snapshots.SNAPSHOT_CADENCE,
    metrics_snapshots.SNAPSHOT_PENDING,
)
_POINTS_MAX = 200
"""Fault points that metrics tell apart: those that are not healthy, the first of them by name."""

_PAGE_BYTES = 4_096


def collect(metrics: EngineMetrics, ownership: Ownership | None) -> bytes:
    """Everything, in the exposition format."""
    metrics.signals.flush()
    metrics.gauge(catalogue.MEMORY, resident_bytes())
    metrics.gauge(catalogue.BUILD, 1, version=__version__, rules=str(RULES_KNOWN[-1]))
    for metric in (*_PER_PARTITION, catalogue.PARTITIONS):
        metrics.clear(metric)
    if ownership is not None:
        metrics.gauge(catalogue.PARTITIONS_EXPECTED, ownership.context.layout.partitions)
        states = Counter(task.state for task in ownership.tasks.values())
        for state in TaskState:
            metrics.gauge(catalogue.PARTITIONS, states[state], state=state)
        for task in ownership.tasks.values():
            _partition(metrics, task)
        for number, count in ownership.unowned.items():
            metrics.gauge(catalogue.WAITS_UNOWNED, count, partition=str(number))
        metrics.gauge(catalogue.GROUP_SILENCE, ownership.context.joined().silent_s())
    return metrics.text()


def _partition(metrics: EngineMetrics, task: PartitionTask) -> None:
    partition = str(task.number)
    metrics.gauge(catalogue.RESTORED, task.progress.share, partition=partition)
    fold, checkpointer = task.fold, task.checkpointer
    if fold is None or checkpointer is None or task.state not in RUNNING:
        return
    now_s = time.monotonic()
    for outcome, count in fold.counts.items():
        metrics.gauge(catalogue.OUTCOMES, count, partition=partition, outcome=outcome)
    metrics.gauge(catalogue.WAITING, fold.waiting, partition=partition)
    metrics.gauge(metrics_signing.UNSIGNED, task.keys.missing, partition=partition)
    metrics.gauge(catalogue.LAG, task.lag, partition=partition)
    metrics.gauge(catalogue.BACKLOG_AGE, task.behind_s(now_s), partition=partition)
    age_s = checkpointer.unsaved_s(now_s)
    metrics.gauge(catalogue.CHECKPOINT_AGE, age_s, partition=partition)
    metrics.gauge(catalogue.RUNS_OPEN, fold.open_runs, partition=partition)
    metrics.gauge(metrics_archive.ARCHIVE_BACKLOG, task.archive.backlog(fold), partition=partition)
    metrics.gauge(metrics_archive.ARCHIVE_HOLDS, task.archive.full(fold), partition=partition)
    if isinstance(fold, Partition):
        _recovery(metrics, partition, fold)
    if task.warm is not None:
        _warm(metrics, partition, task.warm)
    figures = task.feed.figures() if task.feed is not None else None
    if figures is not None:
        _monitor(metrics, partition, figures)
    if task.actor is not None and task.actor.fold is not None:
        _fault_points(metrics, partition, task.actor.fold)


def _warm(metrics: EngineMetrics, partition: str, warm: Beside) -> None:
    stat = warm.stat()
    for metric, value in (
        (metrics_warm.WARM_BYTES, warm.bytes_held),
        (metrics_warm.WARM_RUNS, warm.outside),
        (metrics_warm.WARM_UNSAVED, warm.unsaved),
        (metrics_warm.WARM_DISK, stat.disk_bytes),
        (metrics_warm.WARM_STALLED, stat.stalled),
    ):
        metrics.gauge(metric, value, partition=partition)
    if isinstance(warm, WarmPartition) and warm.snapshots is not None:
        pace, pending = warm.snapshots.pace, warm.snapshots.pending
        metrics.gauge(metrics_snapshots.SNAPSHOT_OPTIMUM, pace.optimum, partition=partition)
        metrics.gauge(metrics_snapshots.SNAPSHOT_CADENCE, pace.every, partition=partition)
        metrics.gauge(metrics_snapshots.SNAPSHOT_PENDING, pending, partition=partition)


def _recovery(metrics: EngineMetrics, partition: str, fold: Partition) -> None:
    found = fold.previews.figures()
    for held_by, count in found.held.items():
        metrics.gauge(catalogue.STEPS_HELD, count, partition=partition, held_by=held_by)
    metrics.gauge(catalogue.RECOVERY_ATTEMPTS, found.recovering, partition=partition)
    frozen_s = found.frozen_ms / 1_000
    metrics.gauge(catalogue.RECOVERY_FROZEN, frozen_s, partition=partition)


def _fault_points(metrics: EngineMetrics, partition: str, fold: FaultPoints) -> None:
    refused = fold.counts[Outcome.REFUSED]
    metrics.gauge(catalogue.FAULTS_REFUSED, refused, partition=partition)
    damaged = [point for point in fold.points.values() if point.phase is not Phase.HEALTHY]
    for point in sorted(damaged, key=lambda each: each.name)[:_POINTS_MAX]:
        name = point.name
        metrics.gauge(catalogue.FAULT_POINT_PHASE, 1, fault_point=name, phase=point.phase)
        metrics.gauge(catalogue.FAULT_POINT_WINDOW, point.size, fault_point=name)
        metrics.gauge(catalogue.FAULT_POINT_WAITING, point.waiting, fault_point=name)
        metrics.gauge(catalogue.FAULT_POINT_OUT, point.out, fault_point=name)


def _monitor(metrics: EngineMetrics, partition: str, figures: MonitorFigures) -> None:
    skew_s = figures.producer_skew_ms_max / 1_000
    for metric, value in (
        (catalogue.STEPS_RUNNING, figures.running),
        (catalogue.STEPS_WAITING, figures.dispatched),
        (catalogue.STEPS_SUSPECT, figures.suspects),
        (catalogue.CANARY_AGE, figures.canary_age_s),
        (catalogue.STRAYS, figures.strays + figures.unread),
        (catalogue.PRODUCER_SKEW, skew_s),
        (catalogue.PRODUCERS_FROZEN, figures.producer_clocks_frozen),
    ):
        metrics.gauge(metric, value, partition=partition)
    for verdict, count in figures.verdicts.items():
        metrics.gauge(catalogue.VERDICTS, count, partition=partition, verdict=verdict)


def resident_bytes() -> int:
    """Resident memory of this process, 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0
