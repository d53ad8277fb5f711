"""Metrics of the keys that sign what an engine appends. In the catalogue like all others."""

from __future__ import annotations

from typing import Final

from dalsegno.streams.engine.metric import Kind, Metric

UNSIGNED: Final = Metric(
    "dalsegno_signing_key_missing",
    Kind.GAUGE,
    "1 where no MAC key of this engine is in the policy's list: no clock ticks there.",
    ("partition",),
)
