"""Metrics of the archive. In the catalogue like all others."""

from __future__ import annotations

from typing import Final

from dalsegno.streams.engine.metric import Kind, Metric

ARCHIVE_AGE: Final = Metric(
    "dalsegno_archive_age_seconds",
    Kind.GAUGE,
    "Since when events of the partition wait to be archived; 0 when all are, or nothing archives.",
    ("partition",),
)
ARCHIVE_SEGMENTS: Final = Metric(
    "dalsegno_archive_segments_total", Kind.COUNTER, "Segments that were archived and confirmed."
)
ARCHIVE_BYTES: Final = Metric(
    "dalsegno_archive_bytes_total", Kind.COUNTER, "Bytes of those segments."
)
ARCHIVE_FAILURES: Final = Metric(
    "dalsegno_archive_failures_total",
    Kind.COUNTER,
    "Segments that were not archived at a try, by what was wrong with the store.",
    ("trouble",),
)
ARCHIVE_BACKLOG: Final = Metric(
    "dalsegno_archive_backlog_events",
    Kind.GAUGE,
    "Events of the partition that were applied and are not archived; 0 without an archive.",
    ("partition",),
)
ARCHIVE_HOLDS: Final = Metric(
    "dalsegno_archive_holds_intake",
    Kind.GAUGE,
    "1 while the partition reads no further, since too many of its events are not archived.",
    ("partition",),
)
ARCHIVE_RUNS: Final = Metric(
    "dalsegno_archive_runs",
    Kind.GAUGE,
    "Runs of the partition whose state is in the archive.",
    ("partition",),
)
ARCHIVE_RUNS_LEFT: Final = Metric(
    "dalsegno_archive_runs_sent_total",
    Kind.COUNTER,
    "States of runs that were put in the archive and said to be there; those that moved meanwhile"
    " stayed all the same.",
)
ARCHIVE_RESTORED: Final = Metric(
    "dalsegno_archive_runs_restored_total", Kind.COUNTER, "States that were brought back."
)
ARCHIVE_RESTORE_SECONDS: Final = Metric(
    "dalsegno_archive_restore_seconds",
    Kind.HISTOGRAM,
    "From the first look for a state in the archive until it stands in the log.",
    (),
    (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0),
)
ARCHIVE_RESTORE_FAILURES: Final = Metric(
    "dalsegno_archive_restore_failures_total",
    Kind.COUNTER,
    "States that did not come back at a try, by what was wrong with the store or the segment.",
    ("trouble",),
)
ARCHIVE_WANTED: Final = Metric(
    "dalsegno_archive_runs_wanted",
    Kind.GAUGE,
    "Runs of the partition that are to come back from the archive.",
    ("partition",),
)
ARCHIVE_WANTED_AGE: Final = Metric(
    "dalsegno_archive_wanted_seconds",
    Kind.GAUGE,
    "How long a run of the partition has waited to come back; 0 when none waits.",
    ("partition",),
)
ARCHIVE_LOST: Final = Metric(
    "dalsegno_archive_runs_lost",
    Kind.GAUGE,
    "Of these, runs whose state the archive does not have any more, or has damaged.",
    ("partition",),
)
ARCHIVE_SWEPT: Final = Metric(
    "dalsegno_archive_swept_total",
    Kind.COUNTER,
    "Segments that nobody needs and the sweep removed.",
    ("what",),
)
