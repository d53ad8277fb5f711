"""What the HTTP server shows of partitions and runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final, Self

from dalsegno.schemas.outputs import RunState
from dalsegno.streams.core.faultpoint.point import Phase
from dalsegno.streams.engine.context import PartitionActor
from dalsegno.streams.engine.task import OPENING, PartitionTask

LIMIT_DEFAULT: Final = 100
LIMIT_MAX: Final = 1_000
SCAN_MAX: Final = 20_000
"""Runs looked at per call: a listing must not hold the event loop for long."""

_YIELD_EVERY: Final = 100


def partition_view(task: PartitionTask) -> dict[str, object]:
    """One partition, as `/partitions` shows it."""
    view: dict[str, object] = {
        "partition": task.number,
        "state": task.state,
        "position": task.events_offset,
        "lag": task.lag,
    }
    if task.state in OPENING:
        progress = task.progress
        view["restore"] = {
            "records": progress.records,
            "position": progress.position,
            "end": progress.end,
            "share": round(progress.share, 4),
        }
    if task.error is not None:
        view["error"] = str(task.error)
    if task.missing_topics:
        view["missing_topics"] = [
            f"{name}: run `dalsegno topics create --queue {name.rpartition('.')[2]}`"
            for name in task.missing_topics
        ]
    if task.keys.notice:
        view["signing"] = {"key": task.keys.key_id, "notice": task.keys.notice}
    if task.fold is not None:
        view["counts"] = dict(task.fold.counts)
        view["waiting"] = task.fold.waiting
        view["open_runs"] = task.fold.open_runs
    if task.actor is not None:
        view["fault_points"] = _fault_points(task.actor)
    return view


def _fault_points(actor: PartitionActor) -> object:
    """Those of its partition that are not healthy, by phase; or why it does not run."""
    if actor.stopped is not None:
        return str(actor.stopped)
    if actor.fold is None:
        return "opening"
    return {
        name: str(point.phase)
        for name, point in sorted(actor.fold.points.items())
        if point.phase is not Phase.HEALTHY
    }


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs to list."""

    state: RunState | None
    flow: str
    limit: int

    @classmethod
    def parse(cls, query: Mapping[str, str]) -> Self:
        """From a query string. Raises `ValueError` that says what is allowed."""
        state = query.get("state", "")
        if state and state not in set(RunState):
            raise ValueError(f"state is one of {', '.join(RunState)}")
        limit = int(query.get("limit", str(LIMIT_DEFAULT)))
        if not 1 <= limit <= LIMIT_MAX:
            raise ValueError(f"limit is 1 to {LIMIT_MAX}")
        return cls(RunState(state) if state else None, query.get("flow", ""), limit)


async def list_runs(tasks: Iterable[PartitionTask], wanted: RunFilter) -> dict[str, object]:
    """Runs of our own partitions that fit; `complete` is false when a bound cut the search."""
    found: list[object] = []
    scanned = 0
    for task in tasks:
        fold = task.fold
        ids = () if fold is None else islice(fold.run_ids(), SCAN_MAX + 1)
        for run_id in list(ids):
            if len(found) >= wanted.limit or scanned >= SCAN_MAX:
                return {"runs": found, "complete": False}
            scanned += 1
            if scanned % _YIELD_EVERY == 0:
                await asyncio.sleep(0)
            view = fold.run(run_id) if fold is not None else None
            if view is None or (wanted.state and view.state != wanted.state):
                continue
            if not wanted.flow or view.flow == wanted.flow:
                found.append(view)
    return {"runs": found, "complete": True}
