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
ARCHIVE_SWEPT: Final = Metric(
    "dalsegno_archive_swept_total",
    Kind.COUNTER,
    "Segments that nobody needs and the sweep removed.",
    ("what",),
)
