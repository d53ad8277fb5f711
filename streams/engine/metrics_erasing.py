"""Metrics of erasures. In the catalogue like all others."""

from __future__ import annotations

from typing import Final

from dalsegno.streams.engine.metric import Kind, Metric

ERASURE_AGE: Final = Metric(
    "dalsegno_erasure_age_seconds",
    Kind.GAUGE,
    "How long the oldest erasure of the partition has waited to be removed from the stores beside "
    "the log; 0 when none waits.",
    ("partition",),
)
ERASURES: Final = Metric(
    "dalsegno_erasures_total",
    Kind.COUNTER,
    "Runs that were erased from all stores beside the log.",
)
ERASURE_OVERDUE: Final = Metric(
    "dalsegno_erasure_overdue_topics",
    Kind.GAUGE,
    "Topics that still hold records of before an erasure whose date has passed.",
    ("partition",),
)
ERASURE_FAILURES: Final = Metric(
    "dalsegno_erasure_failures_total",
    Kind.COUNTER,
    "Tries to remove erased runs that failed, by the store.",
    ("store",),
)
