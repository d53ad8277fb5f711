"""What the HTTP server shows of recovery: the plan of a run, and what waits to be brought back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from dalsegno.streams.core.faultpoint.standing import PointView, newest
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.recovery.plan import RecoveryPlan
from dalsegno.streams.core.recovery.preview import RUNS_MAX, Preview
from dalsegno.streams.engine.task import RUNNING, PartitionTask

WIDTH_DEFAULT: Final = 16
"""Attempts side by side that a prediction assumes, unless the caller says otherwise."""

WIDTH_MAX: Final = 100_000
SHOWN_DEFAULT: Final = 20


def whole(query: Mapping[str, str], name: str, default: int, most: int) -> int:
    """A number from 1 to `most` in a query string. Raises `ValueError`."""
    value = int(query.get(name, default))
    if not 1 <= value <= most:
        raise ValueError(f"{name} is 1 to {most}")
    return value


def plan_of(task: PartitionTask, run_id: str, query: Mapping[str, str]) -> RecoveryPlan | None:
    """The recovery plan of a run; None when there is no such live run. Raises `ValueError`."""
    fold = task.fold
    if not isinstance(fold, Partition):
        return None
    return fold.previews.plan(run_id, whole(query, "width", WIDTH_DEFAULT, WIDTH_MAX))


def previews(tasks: Iterable[PartitionTask], query: Mapping[str, str]) -> list[Preview]:
    """What waits in the scope of a query, on each of our own partitions. Raises `ValueError`."""
    width = whole(query, "width", WIDTH_DEFAULT, WIDTH_MAX)
    limit = whole(query, "limit", SHOWN_DEFAULT, RUNS_MAX)
    flow, fault_point = query.get("flow", ""), query.get("fault_point", "")
    return [
        task.fold.previews.look(flow=flow, fault_point=fault_point, limit=limit, width=width)
        for task in tasks
        if task.state in RUNNING and isinstance(task.fold, Partition)
    ]


def fault_points(tasks: Iterable[PartitionTask]) -> list[PointView]:
    """Those that are not healthy, as the partition of ours knows that last heard of each."""
    folds = [task.fold for task in tasks if task.state in RUNNING]
    return newest(
        point for fold in folds if isinstance(fold, Partition) for point in fold.previews.points()
    )
