"""A journal alone under the crash workload: no engine can do with less."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.crash_lab.in_worker import InWorker


def install() -> Callable[[], InWorker]:
    """It needs nothing but this Python."""
    return lambda: InWorker("journal", Path(sys.executable), "journal_worker")
