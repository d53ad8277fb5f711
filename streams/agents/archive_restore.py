"""Runs that are wanted come back from the archive: beside the loop, bounded, again and again.

What is fetched is compared with the digest that the stub has, and goes into the log as
`RunRestored`; the fold compares once more. What the archive does not have any more, or has damaged,
is said in the log, once for each trouble, so that a person hears of it; then it is asked for again,
in case somebody mends the bucket.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import structlog

from dalsegno.schemas.control import RunRestored
from dalsegno.storage.archive.archive import Archive
from dalsegno.storage.archive.objects import ArchiveError, Trouble
from dalsegno.storage.archive.segment import SegmentCorrupt
from dalsegno.streams.core.cold import ColdHead
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.warm import WarmLost
from dalsegno.streams.engine import metrics_archive
from dalsegno.streams.engine.beside import unread
from dalsegno.streams.engine.daemon import in_daemon_thread
from dalsegno.streams.engine.errors import OutcomeUnknownError
from dalsegno.streams.engine.metrics import EngineMetrics
from dalsegno.streams.engine.state_segments import States
from dalsegno.streams.engine.task import RUNNING, PartitionTask

log = structlog.get_logger(__name__)

FETCHES_MAX: Final = 8
"""States that are fetched at once by an engine."""
_GAP_S: Final = 0.02
"""Between two looks at least."""
_PAUSE_FIRST_S: Final = 0.5
_PAUSE_MAX_S: Final = 60.0
_LOST: Final = frozenset({Trouble.MISSING, Trouble.DAMAGED})
"""Troubles of the state itself. Any other is the store's, and no run is at fault."""


@dataclass(slots=True)
class _Try:
    """Where we are with one run. `since_s`: first looked for. `said`: what we appended stands in
    the log there, -1 while nothing does.
    """

    since_s: float
    busy: bool = False
    pause_s: float = 0.0
    next_s: float = 0.0
    said: int = -1
    lost: bool = False


Key = tuple[int, str]


class Restorer:
    """For the partitions of one engine. `turn` is called often, and starts fetches."""

    def __init__(self, archive: Archive | None, metrics: EngineMetrics) -> None:
        """`archive`: None where the settings name no bucket."""
        self._states = None if archive is None else States(archive)
        self._metrics = metrics
        self._tries: dict[Key, _Try] = {}
        self._fetches: set[asyncio.Task[None]] = set()
        self._freed = asyncio.Event()
        self._first = 0
        self._jitter = random.random

    def turn(self, tasks: list[PartitionTask]) -> None:
        """Starts what may be started."""
        gauges = (metrics_archive.ARCHIVE_RUNS, metrics_archive.ARCHIVE_WANTED)
        for gauge in (*gauges, metrics_archive.ARCHIVE_WANTED_AGE, metrics_archive.ARCHIVE_LOST):
            self._metrics.clear(gauge)
        numbers = {task.number for task in tasks}
        self._tries = {key: each for key, each in self._tries.items() if key[0] in numbers}
        # Each turn another partition is the first: one with many must not keep the others waiting.
        self._first = first = (self._first + 1) % max(1, len(tasks))
        for task in (*tasks[first:], *tasks[:first]):
            if isinstance(task.fold, Partition) and task.state in RUNNING:
                try:
                    self._partition(task, task.fold)
                except WarmLost as error:
                    unread(task.warm, error)

    def _partition(self, task: PartitionTask, fold: Partition) -> None:
        number, archived, now_s = task.number, fold.archived, time.monotonic()
        mine = {key[1]: each for key, each in self._tries.items() if key[0] == number}
        for run_id, each in mine.items():
            if not each.busy and not archived.is_wanted(run_id):
                del self._tries[number, run_id]
        waits = {
            run_id
            for run_id, each in mine.items()
            if each.busy or now_s < each.next_s or fold.position <= each.said
        }
        room = FETCHES_MAX - len(self._fetches)
        # Those that have failed before come behind those that have not.
        wanted = archived.wanted(room, mine) if room > 0 else []
        if (left := room - len(wanted)) > 0:
            wanted += archived.wanted(left, waits | {run_id for run_id, _ in wanted})
        for run_id, head in wanted:
            self._start(task, run_id, head)
        oldest = min((each.since_s for each in mine.values()), default=now_s)
        lost = sum(each.lost for each in mine.values())
        for gauge, value in (
            (metrics_archive.ARCHIVE_RUNS, archived.count),
            (metrics_archive.ARCHIVE_WANTED, archived.wanted_count),
            (metrics_archive.ARCHIVE_WANTED_AGE, now_s - oldest),
            (metrics_archive.ARCHIVE_LOST, lost),
        ):
            self._metrics.gauge(gauge, value, partition=str(number))

    def _start(self, task: PartitionTask, run_id: str, head: ColdHead) -> None:
        found = self._tries.setdefault((task.number, run_id), _Try(time.monotonic()))
        found.busy = True
        job = asyncio.create_task(self._fetch(task, run_id, head, found))
        self._fetches.add(job)
        job.add_done_callback(self._ended)

    def _ended(self, job: asyncio.Task[None]) -> None:
        self._fetches.discard(job)
        self._freed.set()
        if not job.cancelled() and (error := job.exception()) is not None:
            # The boundary of a fetch: nobody awaits it, and the run is looked for again.
            log.error("restoring failed", exc_info=error)
            self._metrics.count(metrics_archive.ARCHIVE_RESTORE_FAILURES, trouble="unknown")

    async def rest(self, most_s: float) -> None:
        """Until a fetch has ended, or for so long."""
        self._freed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(most_s):
                await self._freed.wait()
        await asyncio.sleep(_GAP_S)

    async def _fetch(self, task: PartitionTask, run_id: str, head: ColdHead, at: _Try) -> None:
        try:
            parts = await self._parts(run_id, head)
            event = RunRestored(
                run_id=run_id, restore_id=_restore_id(head), parts=parts, digest=head.digest
            )
            at.said = (await task.append_control(event)).offset
            at.lost = False
            self._metrics.count(metrics_archive.ARCHIVE_RESTORED)
            self._metrics.observe(
                metrics_archive.ARCHIVE_RESTORE_SECONDS, time.monotonic() - at.since_s
            )
        except (ArchiveError, SegmentCorrupt) as error:
            await self._failed(task, run_id, head, at, error)
        except OutcomeUnknownError as error:
            log.info("restoring waits for Kafka", run_id=run_id, error=str(error))
            self._later(at)
        except Exception:
            self._later(at)
            raise
        finally:
            at.busy = False

    async def _parts(self, run_id: str, head: ColdHead) -> bytes:
        """Fetched and compared. Raises `ArchiveError`, `SegmentCorrupt`."""
        states = self._states
        if states is None:
            detail = "the settings name no bucket, and runs of this cluster are in one"
            raise ArchiveError(Trouble.CONFIGURED, head.segment, detail)
        return await in_daemon_thread(
            lambda: states.parts(head.segment, run_id, head.digest), f"restore-{run_id}"
        )

    async def _failed(
        self,
        task: PartitionTask,
        run_id: str,
        head: ColdHead,
        at: _Try,
        error: ArchiveError | SegmentCorrupt,
    ) -> None:
        trouble = error.trouble if isinstance(error, ArchiveError) else Trouble.DAMAGED
        self._metrics.count(metrics_archive.ARCHIVE_RESTORE_FAILURES, trouble=str(trouble))
        at.lost = trouble in _LOST
        self._later(at)
        log.warning("not restored", run_id=run_id, partition=task.number, error=str(error))
        if not at.lost or head.trouble == str(trouble):
            return
        event = RunRestored(
            run_id=run_id,
            restore_id=_restore_id(head),
            parts=b"",
            digest=head.digest,
            trouble=str(trouble),
        )
        try:
            at.said = (await task.append_control(event)).offset
        except OutcomeUnknownError as unknown:
            log.info("restoring waits for Kafka", run_id=run_id, error=str(unknown))

    def _later(self, at: _Try) -> None:
        at.pause_s = min(_PAUSE_MAX_S, 2 * at.pause_s or _PAUSE_FIRST_S)
        at.next_s = time.monotonic() + at.pause_s * (1 + self._jitter()) / 2

    async def close(self) -> None:
        """Starts nothing more, and ends what was started."""
        for job in list(self._fetches):
            job.cancel()
        await asyncio.gather(*self._fetches, return_exceptions=True)


def _restore_id(head: ColdHead) -> str:
    return f"{head.segment.rpartition('/')[2]}:{head.wanted_ms}"
