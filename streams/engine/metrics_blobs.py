"""Metrics of large values. In the catalogue like all others."""

from __future__ import annotations

from typing import Final

from dalsegno.streams.engine.metric import Kind, Metric

BLOB_PUTS: Final = Metric(
    "dalsegno_blob_puts_total",
    Kind.COUNTER,
    "Large values that were handed in: stored, or known because the same was there already.",
    ("result",),
)
BLOB_BYTES: Final = Metric(
    "dalsegno_blob_bytes_total",
    Kind.COUNTER,
    "Bytes of large values that came in, and that went out to whoever reads them.",
    ("way",),
)
BLOB_TROUBLES: Final = Metric(
    "dalsegno_blob_troubles_total",
    Kind.COUNTER,
    "Requests for large values that failed: missing, corrupt, or what was wrong with the store.",
    ("trouble",),
)
BLOB_STORED: Final = Metric(
    "dalsegno_blobs",
    Kind.GAUGE,
    "Large values in the store, as of the last sweep.",
    ("partition",),
)
BLOB_STORED_BYTES: Final = Metric(
    "dalsegno_blobs_bytes",
    Kind.GAUGE,
    "What they take in the store, as of the last sweep.",
    ("partition",),
)
BLOB_UNHELD: Final = Metric(
    "dalsegno_blobs_unheld",
    Kind.GAUGE,
    "Of them, how many no run holds: they go after their grace.",
    ("partition",),
)
BLOB_SWEPT: Final = Metric(
    "dalsegno_blobs_swept_total", Kind.COUNTER, "Large values that a sweep has deleted."
)
BLOB_SWEEP_FAILURES: Final = Metric(
    "dalsegno_blob_sweep_failures_total",
    Kind.COUNTER,
    "Sweeps that ended early: what was wrong with the store, not_caught_up, not_archived_yet.",
    ("trouble",),
)
BLOB_SWEEP_AGE: Final = Metric(
    "dalsegno_blob_sweep_age_seconds",
    Kind.GAUGE,
    "Since the last whole sweep of the partition, or since it was taken over.",
    ("partition",),
)
