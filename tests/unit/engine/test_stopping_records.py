"""A record that stops its partition: what the fold had begun with it is in no checkpoint."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from tests.unit.core.log import START_MS, Log, chain, handoffs

from dalsegno.schemas.control import RulesChanged
from dalsegno.schemas.events import FailureType, StepFailed
from dalsegno.storage.errors import StoreFullError
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.engine.archive_settings import ArchiveSettings
from dalsegno.streams.engine.batch import Batch
from dalsegno.streams.engine.checkpoint import Checkpointer, Pace
from dalsegno.streams.engine.errors import EngineError
from dalsegno.streams.engine.task import PartitionTask, TaskState


class Acks:
    flushed = 0

    def flush(self) -> None:
        self.flushed += 1

    def queued(self) -> dict[str, int]:
        return {}

    async def acknowledged(self, _queued: dict[str, int]) -> None:
        return


class Fence:
    def __init__(self) -> None:
        self.written: list[tuple[bytes, bytes | None]] = []

    async def commit(self, writes: dict[object, list[tuple[bytes, bytes | None]]]) -> None:
        for entries in writes.values():
            self.written += entries


def waiting_for_a_retry() -> Log:
    log = Log()
    log.start(chain(1))
    log.began("s0")
    log.put(StepFailed(run_id="r", step="s0", epoch=1, failure_type=FailureType.TRANSIENT))
    return log


async def test_timers_that_fired_with_unknown_rules_fire_again_after_the_upgrade() -> None:
    log = waiting_for_a_retry()
    before, position = log.partition.parts(), log.partition.position
    marker = RulesChanged(partition=0, number=1, rules_version=99)
    fence = Fence()
    task = _task(log.partition, marker, fence)
    late_ms = START_MS + 3_600_000
    raw = SimpleNamespace(offset=position, timestamp=late_ms, key=b"0", value=b"", headers=())
    task.process(Batch(task, 0, [raw], position + 1, position + 1))  # type: ignore[list-item]
    assert task.state is TaskState.STOPPED
    assert task._outputs.flushed == 1, "what was put out before the record leaves"  # type: ignore[union-attr]
    for _ in range(10):
        await asyncio.sleep(0)
    saved = {**before, **{key: value for key, value in fence.written if value is not None}}

    newer = Partition.restore(0, saved.items(), rules_known=(1, 99))
    log.partition, log.now_ms = newer, late_ms
    assert [h.epoch for h in handoffs(log.put(marker))] == [2]


def _task(fold: Partition, event: object, fence: Fence) -> PartitionTask:
    context = SimpleNamespace(
        intake=SimpleNamespace(read=lambda *_, **__: event),
        metrics=SimpleNamespace(
            stopped=lambda _reason: None,
            applied=lambda _count: None,
            signals=SimpleNamespace(outputs=None, near=None, started=None),
        ),
        clock=asyncio.get_running_loop().time,
        settings=SimpleNamespace(archive=ArchiveSettings()),
    )
    task = PartitionTask(context, 0, lambda _task, _error: None, asyncio.Semaphore(1))  # type: ignore[arg-type]
    task._fold = fold
    task._outputs = Acks()  # type: ignore[assignment]
    task._outputs.add = lambda _outputs: None  # type: ignore[method-assign,union-attr]
    task._checkpointer = Checkpointer(
        fold,
        Acks(),  # type: ignore[arg-type]
        fence,  # type: ignore[arg-type]
        ("changelog", 0),
        pace=Pace(interval_s=0.0, events_max=0, bytes_max=0),
        failed=lambda _error: None,
        done=lambda _done: None,
        clock=asyncio.get_running_loop().time,
    )
    # Something applied has not been captured yet: the stop would bring a checkpoint.
    task._checkpointer._captured -= 1
    task.state = TaskState.BUSY
    return task


async def test_a_batch_that_cannot_be_begun_ends_its_partition_and_no_agent() -> None:
    """A full disk refuses reads, too: the batch would stay under way for ever."""
    log = waiting_for_a_retry()
    lost: list[EngineError] = []
    task = _task(log.partition, None, Fence())
    task._lost = lambda _task, error: lost.append(error)

    def ahead(*_: object) -> None:
        raise StoreFullError("No space left on device")

    task.warm = SimpleNamespace(ahead=ahead)  # type: ignore[assignment]
    task.process(Batch(task, 0, [], 1, 1))
    assert task.state is TaskState.CLOSED
    assert "No space left" in str(lost[0])


async def test_deadlines_that_cannot_be_looked_at_end_their_partition_and_no_other() -> None:
    log = waiting_for_a_retry()
    lost: list[EngineError] = []
    task = _task(log.partition, None, Fence())
    task._lost = lambda _task, error: lost.append(error)
    task.keys = SimpleNamespace(key_id="k")  # type: ignore[assignment]

    def due(*_: object) -> bool:
        raise StoreFullError("No space left on device")

    task.ticks = SimpleNamespace(due=due)  # type: ignore[assignment]
    assert not task.tick_owed()
    assert task.state is TaskState.CLOSED
    assert "No space left" in str(lost[0])
