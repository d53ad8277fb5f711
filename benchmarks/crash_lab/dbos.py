"""DBOS under the crash workload, on SQLite or PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.crash_lab import postgres
from benchmarks.crash_lab.in_worker import FileStore, InWorker
from benchmarks.crash_lab.installing import python_with


def _python() -> Path:
    return python_with("dbos", "dbos==3.4.0")


def on_sqlite() -> Callable[[], InWorker]:
    """Raises `NotInstallable`."""
    python = _python()
    return lambda: InWorker("dbos-sqlite", python, "dbos_worker", FileStore("sqlite:///"))


def on_postgres() -> Callable[[], InWorker]:
    """Raises `NotInstallable`."""
    programs, python = postgres.programs(), _python()
    return lambda: InWorker("dbos-postgres", python, "dbos_worker", postgres.Postgres(programs))
