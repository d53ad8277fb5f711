"""States of runs go to an archive and come back, whatever the store makes of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest
from tests.unit.core.log import START_MS, Log, chain, escalations, handoffs, view
from tests.unit.core.shelf import waiting_for_a_person
from tests.unit.people.asking import decision, failed

from dalsegno.schemas.control import ControlEvent, ErasureRequested, RunRestored
from dalsegno.schemas.events import RunPaused
from dalsegno.schemas.outputs import Outcome
from dalsegno.storage.archive.archive import Archive
from dalsegno.storage.archive.memory import MemoryObjects
from dalsegno.storage.archive.objects import ArchiveError, Trouble
from dalsegno.streams.agents import archive_restore, archive_states
from dalsegno.streams.agents.archive_restore import Restorer
from dalsegno.streams.agents.archive_states import StateArchiver
from dalsegno.streams.core.actions import Output
from dalsegno.streams.engine.archive_settings import ArchiveSettings
from dalsegno.streams.engine.errors import OutcomeUnknownError
from dalsegno.streams.engine.metrics import EngineMetrics
from dalsegno.streams.engine.producers import Appended
from dalsegno.streams.engine.rewriting import rewrite
from dalsegno.streams.engine.state_segments import States
from dalsegno.streams.engine.task import TaskState

SETTINGS = ArchiveSettings(bucket="b", idle_ms=1_000, interval_ms=100)


class Task:
    """What the agents use of a partition task, over a log of a test."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.number = 0
        self.state = TaskState.READY
        self.warm = None
        self.broken = 0
        self.out: list[Output] = []
        self.appended: list[ControlEvent] = []

    @property
    def fold(self):  # type: ignore[no-untyped-def]
        return self.log.partition

    async def append_control(self, event: ControlEvent) -> Appended:
        if self.broken:
            self.broken -= 1
            raise OutcomeUnknownError("nobody knows")
        offset = self.log.partition.position
        self.appended.append(event)
        self.out += self.log.put(event)
        return Appended(offset, self.log.now_ms)


class Liar(MemoryObjects):
    """Fails, forgets and lies as it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.trouble: Trouble | None = None
        self.spoil: Callable[[bytes], bytes] | None = None

    def get(self, key: str, first: int = 0, size: int | None = None) -> bytes:
        if self.trouble is not None:
            raise ArchiveError(self.trouble, key, "as told")
        found = super().get(key, first, size)
        return found if self.spoil is None else self.spoil(found)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_restore, "_PAUSE_FIRST_S", 0.0)
    monkeypatch.setattr(archive_restore, "_PAUSE_MAX_S", 0.0)


def archiver(objects: MemoryObjects) -> StateArchiver:
    return at(START_MS + 600_000, objects)


def at(now_ms: int, objects: MemoryObjects, settings: ArchiveSettings = SETTINGS) -> StateArchiver:
    archive = Archive(objects, "p")
    return StateArchiver(archive, settings, EngineMetrics(), 1, now_ms=lambda: now_ms)


async def restored(task: Task, restorer: Restorer, turns: int = 50) -> None:
    """Looks until nothing is wanted any more, or often enough."""
    for _ in range(turns):
        restorer.turn([task])  # type: ignore[list-item]
        await asyncio.gather(*restorer._fetches)
        if not task.fold.archived.wanted_count:
            return


def there_and_back(objects: MemoryObjects) -> tuple[Task, list[Output]]:
    log, package = waiting_for_a_person()
    task = Task(log)

    async def go() -> None:
        await archiver(objects).turn(task)  # type: ignore[arg-type]
        assert view(log).kind == "archived"
        log.put(decision(package, "retry"))
        await restored(task, Restorer(Archive(objects, "p"), EngineMetrics()))

    asyncio.run(go())
    return task, task.out


def test_a_run_that_waits_for_long_leaves_and_comes_back_for_a_decision() -> None:
    objects = MemoryObjects()
    task, out = there_and_back(objects)
    assert view(task.log).kind == "run"
    assert [h.epoch for h in handoffs(out)] == [2]
    archive = Archive(objects, "p")
    assert list(archive.names()) == [], "no segment of events"
    (name,) = archive.state_names()
    assert archive.manifest(name).run_ids == {"r": 3}
    archive.verify(archive.manifest(name))


def test_one_that_is_young_or_due_soon_stays_and_with_no_limit_all_do() -> None:
    log, _ = waiting_for_a_person()
    deadline = log.partition.next_log_deadline_ms
    assert deadline is not None
    never = ArchiveSettings(bucket="b", idle_ms=0)
    for now_ms, settings, leaves in (
        (START_MS + 999, SETTINGS, False),
        (deadline - 200, SETTINGS, False),
        (START_MS + 600_000, never, False),
        (deadline - 300, SETTINGS, True),
    ):
        asyncio.run(at(now_ms, MemoryObjects(), settings).turn(Task(log)))  # type: ignore[arg-type]
        assert (view(log).kind == "archived") is leaves


def test_many_runs_leave_in_segments_of_a_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_states, "SEGMENT_RUNS_MAX", 7)
    monkeypatch.setattr(archive_states, "_LOOKED_AT_ONCE", 5)
    log = Log()
    for number in range(23):
        run_id = f"r{number:02d}"
        log.start(chain(1), run_id)
        log.began("s0", run_id=run_id)
        failed(log, "s0", run_id=run_id)
    log.partition.capture()
    task, objects = Task(log), MemoryObjects()
    states = archiver(objects)

    async def go() -> None:
        for _ in range(10):
            await states.turn(task)  # type: ignore[arg-type]

    asyncio.run(go())
    assert log.partition.archived.count == 23
    sizes = [len(event.run_ids) for event in task.appended]  # type: ignore[attr-defined]
    assert sum(sizes) == 23
    assert max(sizes) <= 10
    archive = Archive(objects, "p")
    for name in archive.state_names(0):
        manifest = archive.manifest(name)
        kinds = [entry.kind.name for entry in archive.index(manifest).entries]
        assert kinds.count("PLAN") == 1, "each plan once"
    for number in range(23):
        log.put(_paused(f"r{number:02d}"))
    asyncio.run(restored(task, Restorer(archive, EngineMetrics())))
    assert log.partition.archived.count == 0
    assert log.partition.waiting == 0


def _paused(run_id: str):  # type: ignore[no-untyped-def]
    return RunPaused(run_id=run_id, request_id="p")


@pytest.mark.parametrize("trouble", list(Trouble))
def test_what_passes_is_tried_again_and_no_run_is_at_fault(trouble: Trouble) -> None:
    log, package = waiting_for_a_person()
    task, objects = Task(log), Liar()
    metrics = EngineMetrics()
    restorer = Restorer(Archive(objects, "p"), metrics)

    async def go() -> None:
        await archiver(objects).turn(task)  # type: ignore[arg-type]
        log.put(decision(package, "retry"))
        objects.trouble = trouble
        await restored(task, restorer, 3)
        assert view(log).kind == "archived"
        objects.trouble = None
        await restored(task, restorer)

    asyncio.run(go())
    assert view(log).kind == "run"
    lost = trouble in {Trouble.MISSING, Trouble.DAMAGED}
    notices = [each for each in escalations(task.out) if each.reason == "not_restored"]
    assert len(notices) == lost
    text = metrics.text().decode()
    assert f'restore_failures_total{{trouble="{trouble}"}} 3.0' in text


def test_bytes_that_are_others_never_become_a_run_and_a_person_hears_of_it_once() -> None:
    log, package = waiting_for_a_person()
    task, objects = Task(log), Liar()
    rng = random.Random(1)

    def flipped(data: bytes) -> bytes:
        spoiled = bytearray(data)
        spoiled[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        return bytes(spoiled)

    async def go() -> None:
        await archiver(objects).turn(task)  # type: ignore[arg-type]
        log.put(decision(package, "retry"))
        for spoil in (flipped, lambda data: data[:-1], lambda data: b"", lambda data: data + b"x"):
            objects.spoil = spoil
            await restored(task, Restorer(Archive(objects, "p"), EngineMetrics()), 10)
            assert view(log).kind == "archived"
        objects.spoil = None
        await restored(task, Restorer(Archive(objects, "p"), EngineMetrics()))

    asyncio.run(go())
    assert view(log).kind == "run"
    assert len([e for e in escalations(task.out) if e.reason == "not_restored"]) == 1
    assert [e for e in task.appended if isinstance(e, RunRestored) and not e.trouble] != []


def test_kafka_that_does_not_answer_costs_nothing() -> None:
    log, package = waiting_for_a_person()
    task, objects = Task(log), MemoryObjects()
    states = archiver(objects)

    async def go() -> None:
        task.broken = 1
        with pytest.raises(OutcomeUnknownError):
            await states.turn(task)  # type: ignore[arg-type]
        assert view(log).kind == "run"
        for _ in range(3):
            await archiver(objects).turn(task)  # type: ignore[arg-type]
        log.put(decision(package, "retry"))
        task.broken = 2
        await restored(task, Restorer(Archive(objects, "p"), EngineMetrics()))

    asyncio.run(go())
    assert view(log).kind == "run"
    assert log.outcomes == [Outcome.APPLIED, Outcome.APPLIED]


def test_without_a_bucket_runs_that_are_wanted_are_counted_as_misconfigured() -> None:
    log, package = waiting_for_a_person()
    task, objects, metrics = Task(log), MemoryObjects(), EngineMetrics()

    async def go() -> None:
        await archiver(objects).turn(task)  # type: ignore[arg-type]
        log.put(decision(package, "retry"))
        await restored(task, Restorer(None, metrics), 2)

    asyncio.run(go())
    text = metrics.text().decode()
    assert 'dalsegno_archive_restore_failures_total{trouble="configured"} 2.0' in text
    assert 'dalsegno_archive_runs_wanted{partition="0"} 1.0' in text
    assert view(log).kind == "archived"


def test_a_segment_that_was_rewritten_meanwhile_still_gives_its_other_runs_back() -> None:
    log, package = waiting_for_a_person()
    log.start(chain(1), "gone")
    log.began("s0", run_id="gone")
    failed(log, "s0", run_id="gone")
    task, objects = Task(log), MemoryObjects()
    archive, restorer = Archive(objects, "p"), Restorer(Archive(objects, "p"), EngineMetrics())
    erased = ErasureRequested(run_id="gone", erasure_id="e", reason="r", requested_by="ana")

    async def go() -> None:
        await archiver(objects).turn(task)  # type: ignore[arg-type]
        (first,) = archive.state_names(0)
        log.put(RunPaused(run_id="gone", request_id="p"))
        await restored(task, restorer)  # it knows the segment by now
        log.put(erased)
        assert rewrite(archive, 0, dict(log.partition.erasures), log.partition.position).states == 1
        (second,) = archive.state_names(0)
        assert second != first
        log.put(decision(package, "retry"))
        await restored(task, restorer)

    asyncio.run(go())
    assert [h.epoch for h in handoffs(task.out)] == [2]
    assert not [e for e in escalations(task.out) if e.reason == "not_restored"]
    assert b"gone" not in b"".join(objects.get(each.key) for each in objects.list("p/segments/"))


def archived_runs(count: int, objects: MemoryObjects) -> tuple[Log, Task]:
    """So many runs in the archive, each of them wanted."""
    log = Log()
    for number in range(count):
        run_id = f"r{number:02d}"
        log.start(chain(1), run_id)
        log.began("s0", run_id=run_id)
        failed(log, "s0", run_id=run_id)
    task = Task(log)
    asyncio.run(archiver(objects).turn(task))  # type: ignore[arg-type]
    for number in range(count):
        log.put(_paused(f"r{number:02d}"))
    assert log.partition.archived.wanted_count == count
    return log, task


def test_a_partition_with_many_that_are_wanted_keeps_no_other_waiting() -> None:
    objects = MemoryObjects()
    many, few = archived_runs(30, objects)[1], archived_runs(1, objects)[1]
    few.number = 1
    restorer = Restorer(Archive(objects, "p"), EngineMetrics())

    async def go() -> None:
        for _ in range(2):
            restorer.turn([many, few])  # type: ignore[list-item]
            await asyncio.gather(*restorer._fetches)

    asyncio.run(go())
    assert few.fold.archived.wanted_count == 0
    assert many.fold.archived.wanted_count > 0


def test_runs_that_are_lost_keep_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_restore, "FETCHES_MAX", 2)
    objects = MemoryObjects()
    log, task = archived_runs(6, objects)
    states = States.parts

    def lost(self: States, segment: str, run_id: str, digest: bytes) -> bytes:
        if run_id < "r04":
            raise ArchiveError(Trouble.MISSING, segment, "as told")
        return states(self, segment, run_id, digest)

    monkeypatch.setattr(States, "parts", lost)
    asyncio.run(restored(task, Restorer(Archive(objects, "p"), EngineMetrics()), 4))
    assert log.partition.archived.wanted_count == 4
    assert view(log, "r05").kind == "run"


def test_the_next_are_fetched_as_soon_as_there_is_room() -> None:
    objects = MemoryObjects()
    log, task = archived_runs(30, objects)
    restorer = Restorer(Archive(objects, "p"), EngineMetrics())

    async def go() -> None:
        async with asyncio.timeout(60):
            while log.partition.archived.wanted_count:
                restorer.turn([task])  # type: ignore[list-item]
                await restorer.rest(3_600)

    asyncio.run(go())


def test_a_fetch_that_fails_as_nobody_expects_is_counted_and_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    objects = MemoryObjects()
    log, task = archived_runs(1, objects)
    metrics = EngineMetrics()
    restorer = Restorer(Archive(objects, "p"), metrics)

    def raises(*_: object) -> bytes:
        raise RuntimeError("not what a store says")

    async def go() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(States, "parts", raises)
            restorer.turn([task])  # type: ignore[list-item]
            await asyncio.gather(*restorer._fetches, return_exceptions=True)
        await restored(task, restorer)

    asyncio.run(go())
    assert log.partition.archived.wanted_count == 0
    text = metrics.text().decode()
    assert 'dalsegno_archive_restore_failures_total{trouble="unknown"} 1.0' in text
