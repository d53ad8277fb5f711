"""Metrics of snapshot chains. In the catalogue like all others."""

from __future__ import annotations

from typing import Final

from dalsegno.streams.engine.metric import Kind, Metric

SNAPSHOT_OPTIMUM: Final = Metric(
    "dalsegno_snapshot_optimum_versions",
    Kind.GAUGE,
    "Versions of a run between two links of its chain, by the closed form; only with a data"
    " folder.",
    ("partition",),
)
SNAPSHOT_CADENCE: Final = Metric(
    "dalsegno_snapshot_cadence_versions",
    Kind.GAUGE,
    "The same as chosen: another number than the optimum only with the learned factor.",
    ("partition",),
)
SNAPSHOT_PENDING: Final = Metric(
    "dalsegno_snapshot_pending_versions",
    Kind.GAUGE,
    "Versions of runs that no link holds yet.",
    ("partition",),
)
SNAPSHOT_LINKS: Final = Metric(
    "dalsegno_snapshot_links_total",
    Kind.COUNTER,
    "Links written to snapshot chains.",
    ("kind",),
)
SNAPSHOT_BYTES: Final = Metric(
    "dalsegno_snapshot_bytes_total",
    Kind.COUNTER,
    "Their bytes, as stored.",
    ("kind",),
)
SNAPSHOT_SECONDS: Final = Metric(
    "dalsegno_snapshot_link_seconds",
    Kind.HISTOGRAM,
    "Making and writing one link, beside the loop.",
    (),
    (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 1.0),
)
SNAPSHOT_CORRUPT: Final = Metric(
    "dalsegno_snapshot_corrupt_total",
    Kind.COUNTER,
    "Links that failed when they were verified; the link before and the log were used.",
    ("fault",),
)
SNAPSHOT_PRUNED: Final = Metric(
    "dalsegno_snapshot_pruned_total",
    Kind.COUNTER,
    "Links deleted because a chain had more than it may keep.",
)
SNAPSHOT_GIVEN_UP: Final = Metric(
    "dalsegno_snapshot_given_up_total",
    Kind.COUNTER,
    "Versions that chains lack because links were not written in time; the log has them.",
)
SNAPSHOT_BROKEN: Final = Metric(
    "dalsegno_snapshot_broken_total",
    Kind.COUNTER,
    "Chains that were begun anew because a link could not be made: a fault of ours, in the log.",
)
