"""Metrics of runs that are not in memory. In the catalogue like all others."""

from __future__ import annotations

from typing import Final

from dalsegno.streams.engine.metric import SECONDS, Kind, Metric

WARM_BYTES: Final = Metric(
    "dalsegno_runs_memory_bytes",
    Kind.GAUGE,
    "What the runs in memory take, estimated; only with a data folder.",
    ("partition",),
)
MEMORY_FULL: Final = Metric(
    "dalsegno_memory_full",
    Kind.GAUGE,
    "1 while no events are taken, since runs that cannot leave memory are over its hard bound.",
)
WARM_RUNS: Final = Metric(
    "dalsegno_warm_runs",
    Kind.GAUGE,
    "Runs and stubs that are not in memory but in the local database.",
    ("partition",),
)
WARM_DISK: Final = Metric(
    "dalsegno_warm_disk_bytes", Kind.GAUGE, "Size of the local database.", ("partition",)
)
WARM_UNSAVED: Final = Metric(
    "dalsegno_warm_unsaved_records",
    Kind.GAUGE,
    "Records that are in the changelog and not in the local database yet.",
    ("partition",),
)
WARM_STALLED: Final = Metric(
    "dalsegno_warm_stalled",
    Kind.GAUGE,
    "1 while the local database holds writes back.",
    ("partition",),
)
WARM_TOUCHED: Final = Metric(
    "dalsegno_warm_touched_total",
    Kind.COUNTER,
    "Runs that batches touched, counted once per batch: with those missing, the hit rate.",
)
WARM_MISSING: Final = Metric(
    "dalsegno_warm_missing_total",
    Kind.COUNTER,
    "Of these, how many were not in memory and were read beside the fold. New runs count too.",
)
WARM_LATE: Final = Metric(
    "dalsegno_warm_late_total",
    Kind.COUNTER,
    "Runs that the fold itself had to wait for, since nobody had read them before.",
)
WARM_LEFT: Final = Metric(
    "dalsegno_warm_left_total", Kind.COUNTER, "Runs that left memory for the local database."
)
WARM_READ: Final = Metric(
    "dalsegno_warm_read_seconds",
    Kind.HISTOGRAM,
    "Reading the missing runs of one batch.",
    (),
    SECONDS,
)
WARM_WRITE: Final = Metric(
    "dalsegno_warm_write_seconds",
    Kind.HISTOGRAM,
    "Putting one checkpoint in the local database.",
    (),
    SECONDS,
)
WARM_STALLS: Final = Metric(
    "dalsegno_warm_write_stalls_total",
    Kind.COUNTER,
    "Writes that the local database put off because the disk does not keep up.",
)
WARM_WRITE_FAILURES: Final = Metric(
    "dalsegno_warm_write_failures_total",
    Kind.COUNTER,
    "Writes that failed (disk full, I/O): runs stay in memory until one succeeds.",
)
WARM_WIPED: Final = Metric(
    "dalsegno_warm_wiped_total",
    Kind.COUNTER,
    "Local databases that were thrown away and restored from the changelog: damaged, foreign,"
    " ahead, behind or too_old.",
    ("reason",),
)
