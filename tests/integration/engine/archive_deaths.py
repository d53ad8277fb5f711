"""Where an engine dies, once, between two steps of a run's way to the archive and back."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from dalsegno.schemas.control import ArchiveConfirmed, RunRestored
from dalsegno.storage.archive.s3 import S3Objects
from dalsegno.streams.engine.task import PartitionTask

POINTS = (
    "before the segment is put",
    "before its manifest is put",
    "before the log is told",
    "after the log was told",
)
BACK_POINTS = ("before the state is in the log", "after the state is in the log")


def install(point: str, marker: Path) -> None:
    """The process kills itself there, unless the marker says that one has died already."""

    def die() -> None:
        if not marker.exists():
            marker.write_text(point)
            os.kill(os.getpid(), signal.SIGKILL)

    put = S3Objects.put

    def dying_put(self: S3Objects, key: str, data: bytes) -> None:
        if "/segments/" in key and "runs-" in key and point == POINTS[0]:
            die()
        if "/manifests/" in key and "runs-" in key and point == POINTS[1]:
            die()
        put(self, key, data)

    S3Objects.put = dying_put  # type: ignore[method-assign]
    append = PartitionTask.append_control

    async def dying_append(self: PartitionTask, event: Any) -> Any:
        states = isinstance(event, ArchiveConfirmed) and event.run_ids
        back = isinstance(event, RunRestored) and not event.trouble
        if (states and point == POINTS[2]) or (back and point == BACK_POINTS[0]):
            die()
        found = await append(self, event)
        if (states and point == POINTS[3]) or (back and point == BACK_POINTS[1]):
            die()
        return found

    PartitionTask.append_control = dying_append  # type: ignore[method-assign]
