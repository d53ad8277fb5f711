"""The sweeper beside an engine's partitions: it waits for the fold, and finds runs wherever they
are.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest
from tests.unit.core.log import Log, chain
from tests.unit.storage.blob_lab import GRACE_MS, BlobLab, packed

from dalsegno.storage.archive.archive import Archive
from dalsegno.storage.archive.memory import MemoryObjects
from dalsegno.storage.archive.objects import Trouble
from dalsegno.storage.memory import MemoryTable
from dalsegno.storage.warm import Place, WarmStore
from dalsegno.streams.agents import blobs
from dalsegno.streams.agents.blobs import SweepEndedError, Sweeper
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.engine.metrics import EngineMetrics
from dalsegno.streams.engine.ownership import Ownership
from dalsegno.streams.engine.settings import EngineSettings
from dalsegno.streams.engine.task import PartitionTask, TaskState

BLOB, DATA = packed(3_000)


class Task:
    """A partition task, as the sweeper sees one."""

    def __init__(self, fold: Partition) -> None:
        self.number = 1
        self.fold = fold
        self.state = TaskState.READY
        self.behind = 0.0
        self.asked = 0

    def behind_s(self, now_s: float) -> float:
        self.asked += 1
        return self.behind


class Context:
    def __init__(self) -> None:
        self.settings = EngineSettings()
        self.metrics = EngineMetrics()


class Owner:
    def __init__(self, *tasks: Task) -> None:
        self.context = Context()
        self.tasks = {task.number: task for task in tasks}


class Stand:
    """A partition with one run, a blob that was put, and a sweeper."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.lab = BlobLab()
        self.lab.store.put(1, BLOB, DATA)
        self.task = Task(log.partition)
        self.owner = Owner(self.task)
        self.sweeper = Sweeper(cast(Ownership, self.owner), self.lab.store, self.lab.clock)

    async def sweep(self) -> int:
        """How many blobs are unheld."""
        found = await self.sweeper.sweep(1, cast(PartitionTask, self.task))
        return found.unheld

    def later(self) -> None:
        self.lab.clock.now_ms += GRACE_MS + 1

    @property
    def there(self) -> bool:
        return bool(self.lab.keys())


async def until(look: Callable[[], bool]) -> None:
    while not look():  # noqa: ASYNC110 - what is looked at is no event
        await asyncio.sleep(0)


def holding(run_id: str, log: Log) -> None:
    log.start(chain(1), run_id=run_id, context={"document": BLOB})


async def test_what_no_run_holds_goes_and_the_rest_stays() -> None:
    log = Log()
    holding("r", log)
    other, more = packed(2_000, 9)
    stand = Stand(log)
    stand.lab.store.put(1, other, more)
    assert await stand.sweep() == 1
    stand.later()
    assert await stand.sweep() == 1
    assert [each.digest for each in stand.lab.store.stored(1)] == [BLOB.digest]
    assert stand.lab.store.get(1, BLOB) == DATA


async def test_an_event_that_the_log_held_at_the_listing_is_folded_before_anything_is_marked() -> (
    None
):
    stand = Stand(Log())
    stand.task.behind = 1_000.0
    sweeping = asyncio.create_task(stand.sweep())
    await until(lambda: stand.task.asked >= 3 or sweeping.done())
    holding("r", stand.log)
    stand.task.behind = 0.0
    assert await sweeping == 0


async def test_a_partition_that_is_lost_meanwhile_ends_the_sweep_and_nothing_goes() -> None:
    stand = Stand(Log())
    await stand.sweep()
    stand.later()
    stand.task.behind = 1_000.0
    sweeping = asyncio.create_task(stand.sweep())
    await until(lambda: stand.lab.objects.calls.count("list") == 3)
    stand.task.state = TaskState.CLOSED
    with pytest.raises(SweepEndedError, match="partition_lost"):
        await sweeping
    assert stand.there


async def test_another_owner_begins_to_count_anew() -> None:
    stand = Stand(Log())
    await stand.sweep()
    stand.later()
    stand.task = Task(stand.log.partition)
    assert await stand.sweep() == 1
    assert stand.there
    stand.later()
    await stand.sweep()
    assert not stand.there


async def test_runs_that_are_not_in_memory_hold_what_they_name() -> None:
    store = WarmStore(MemoryTable(), "cluster/topic/0")
    partition = Partition.open(0, store)
    log = Log(partition)
    for number in range(450):
        log.start(chain(1), run_id=f"r{number:03d}", context={"n": number})
    holding("zzz", log)
    store.put(dict(partition.capture()), Place(1, 0))
    residence = partition.residence
    assert residence is not None
    residence.stored(residence.captures, 1)
    assert residence.leave(1 << 40, 1 << 60) == 451
    assert list(partition.held_ids()) == []
    stand = Stand(log)
    assert await stand.sweep() == 0


async def test_trouble_of_the_store_is_counted_and_the_next_turn_waits() -> None:
    stand = Stand(Log())
    stand.lab.objects.down = Trouble.DENIED
    await stand.sweeper.turn()
    page = stand.owner.context.metrics.text().decode()
    assert 'dalsegno_blob_sweep_failures_total{trouble="denied"} 1.0' in page
    calls = len(stand.lab.objects.calls)
    await stand.sweeper.turn()
    assert len(stand.lab.objects.calls) == calls


async def test_a_sweep_that_failed_makes_no_partition_look_swept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its age goes on since the last whole sweep, or since the partition was taken over."""
    slept = [0]  # hours that nobody waits for
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + 3_600 * slept[0])
    monkeypatch.setattr(blobs, "time", clock)
    stand = Stand(Log())

    async def hours() -> int:
        await stand.sweeper.turn()
        lines = stand.owner.context.metrics.text().decode().splitlines()
        (line,) = [each for each in lines if each.startswith("dalsegno_blob_sweep_age_seconds{")]
        return int(float(line.split()[1]) / 3_600)

    stand.lab.objects.down = Trouble.DENIED
    assert await hours() == 0
    slept[0] = 2
    assert await hours() == 2
    slept[0] = 4
    assert await hours() == 4
    stand.lab.objects.down = None
    slept[0] = 6
    assert await hours() == 0


async def test_a_partition_that_is_gone_has_no_figures() -> None:
    stand = Stand(Log())
    await stand.sweeper.turn()
    del stand.owner.tasks[1]
    await stand.sweeper.turn()
    assert 'partition="1"' not in stand.owner.context.metrics.text().decode()


async def test_a_turn_sets_the_figures() -> None:
    stand = Stand(Log())
    await stand.sweeper.turn()
    page = stand.owner.context.metrics.text().decode()
    assert 'dalsegno_blobs{partition="1"} 1.0' in page
    assert 'dalsegno_blobs_bytes{partition="1"} 3000.0' in page
    assert 'dalsegno_blobs_unheld{partition="1"} 1.0' in page


async def test_what_an_erased_run_held_alone_goes_at_once_or_is_said_to_go_later() -> None:
    log = Log()
    shared, both = packed(2_000, 9)
    young, data = packed(2_000, 11)
    log.start(chain(1), run_id="other", context={"document": shared})
    stand = Stand(log)
    stand.lab.store.put(1, shared, both)
    stand.later()
    stand.lab.store.put(1, young, data)
    task = cast(PartitionTask, stand.task)
    digests = [BLOB.digest, shared.digest, young.digest]
    found = await stand.sweeper.forget(1, task, digests)
    assert found.held == (shared.digest,)
    assert [each.digest for each in found.delete] == [BLOB.digest]
    assert [each.digest for each in found.left] == [young.digest]
    there = {each.digest for each in stand.lab.store.stored(1)}
    assert there == {shared.digest, young.digest}
    stand.lab.clock.now_ms = found.due_ms
    again = await stand.sweeper.forget(1, task, digests)
    assert (again.left, again.due_ms) == ((), 0)
    assert {each.digest for each in stand.lab.store.stored(1)} == {shared.digest}


async def test_a_walk_over_many_runs_lets_others_have_their_turn() -> None:
    log = Log()
    for number in range(3_000):
        log.start(chain(1), run_id=f"r{number}", context={"n": number})
    stand = Stand(log)
    sweeping = asyncio.create_task(stand.sweep())
    turns = 0
    while not sweeping.done():
        await asyncio.sleep(0)
        turns += 1
    assert await sweeping == 1
    assert turns > 10


async def test_blobs_beside_an_archive_that_the_log_knows_nothing_of_stay() -> None:
    """The cluster was made anew, and its engines have the prefix of the one that is gone."""
    stand = Stand(Log())
    objects = MemoryObjects()
    stand.sweeper = Sweeper(
        cast(Ownership, stand.owner),
        stand.lab.store,
        stand.lab.clock,
        archive=Archive(objects, "p"),
    )
    objects.put("p/manifests/00001/00000000000000000000-00000000000000000009-ab", b"")
    for _ in range(2):
        with pytest.raises(SweepEndedError, match="not_archived_yet"):
            await stand.sweep()
        stand.later()
    assert stand.there
    objects.delete(["p/manifests/00001/00000000000000000000-00000000000000000009-ab"])
    assert await stand.sweep() == 1
    stand.later()
    await stand.sweep()
    assert not stand.there
