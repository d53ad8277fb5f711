"""A run as it was: `/runs/{id}?version=N`, from its snapshot chain or the state in memory."""

from __future__ import annotations

from http import HTTPStatus
from typing import NamedTuple

from dalsegno.streams.core.partition import Partition
from dalsegno.streams.engine.task import PartitionTask
from dalsegno.streams.engine.warm_partition import WarmPartition


class Answer(NamedTuple):
    """HTTP status, and what is said."""

    status: HTTPStatus
    body: dict[str, object]


async def version_of(task: PartitionTask, run_id: str, run_version: int) -> Answer:
    """One of the run's versions. Raises `WarmLost`.

    404 `version_not_kept` says why: the log has it all the same.
    """
    fold = task.fold
    view = None if fold is None else fold.run(run_id)
    where: dict[str, object] = {"run_id": run_id, "partition": task.number}
    if view is None or not isinstance(fold, Partition):
        return Answer(HTTPStatus.NOT_FOUND, {"error": "unknown_run", **where})
    whose = fold.versions.whose(run_id)
    if whose is None:
        detail = "the run is not live here: fold the log, `dalsegno show --at`"
        return _not_kept(where, detail, 0)
    if not 1 <= run_version <= whose.newest:
        return _not_kept(where, f"its versions are 1 to {whose.newest}", whose.newest)
    newest = fold.versions.now(run_id) if run_version == whose.newest else None
    warm = task.warm if isinstance(task.warm, WarmPartition) else None
    kept = None if warm is None else await warm.version(run_id, run_version)
    found = kept or newest
    if found is None:
        why = "no snapshots are kept" if warm is None else "no whole link of its chain has it"
        return _not_kept(where, f"{why}: fold the log, `dalsegno show --at`", whose.newest)
    position = task.events_offset
    body = {"partition": task.number, "position": position, "version": found}
    return Answer(HTTPStatus.OK, body)


def _not_kept(where: dict[str, object], detail: str, newest: int) -> Answer:
    body = {"error": "version_not_kept", "detail": detail, "newest": newest, **where}
    return Answer(HTTPStatus.NOT_FOUND, body)
