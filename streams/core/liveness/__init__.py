"""Liveness, pure: what the monitor of a partition concludes from what it reads."""

from dalsegno.streams.core.liveness.detector import Detector, FixedDetector, HistogramDetector
from dalsegno.streams.core.liveness.monitor import Monitor, Reading
from dalsegno.streams.core.liveness.settings import (
    CANARY_INTERVAL_MS,
    DEFAULT_HEARTBEAT_MS,
    LivenessSettings,
)
from dalsegno.streams.core.liveness.workers import WorkerClock

__all__ = [
    "CANARY_INTERVAL_MS",
    "DEFAULT_HEARTBEAT_MS",
    "Detector",
    "FixedDetector",
    "HistogramDetector",
    "LivenessSettings",
    "Monitor",
    "Reading",
    "WorkerClock",
]
