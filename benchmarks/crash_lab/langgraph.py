"""LangGraph under the crash workload, with its SQLite or PostgreSQL saver."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.crash_lab import postgres
from benchmarks.crash_lab.in_worker import InWorker
from benchmarks.crash_lab.installing import python_with

_PACKAGES = (
    "langgraph==1.2.24",
    "langgraph-checkpoint-sqlite==3.1.2",
    "langgraph-checkpoint-postgres==3.2.0",
    "psycopg[binary,pool]==3.3.4",
)


def _python() -> Path:
    return python_with("langgraph", *_PACKAGES)


def on_sqlite() -> Callable[[], InWorker]:
    """Raises `NotInstallable`."""
    python = _python()
    return lambda: InWorker("langgraph-sqlite", python, "langgraph_worker")


def on_postgres() -> Callable[[], InWorker]:
    """Raises `NotInstallable`."""
    programs, python = postgres.programs(), _python()
    return lambda: InWorker(
        "langgraph-postgres", python, "langgraph_worker", postgres.Postgres(programs)
    )
