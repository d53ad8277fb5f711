"""The owner's eraser: when it begins, what it waits for, and what it says once it is through."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from aiokafka import TopicPartition
from tests.unit.core.log import START_MS, Log, chain

from dalsegno.schemas.control import ControlEvent, ErasureConfirmed, ErasureRequested
from dalsegno.storage.archive.archive import Archive
from dalsegno.storage.archive.memory import MemoryObjects
from dalsegno.storage.archive.objects import ArchiveError, Trouble
from dalsegno.storage.archive.segment import Kind, SegmentWriter
from dalsegno.streams.agents import erasing
from dalsegno.streams.agents.erasing import Eraser
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.tombstones import digest_of_id
from dalsegno.streams.engine.errors import OutcomeUnknownError
from dalsegno.streams.engine.forgetting import Forgets
from dalsegno.streams.engine.log_ages import LogAges
from dalsegno.streams.engine.metrics import EngineMetrics
from dalsegno.streams.engine.ownership import Ownership
from dalsegno.streams.engine.producers import Appended
from dalsegno.streams.engine.rewriting import Rewritten
from dalsegno.streams.engine.settings import EngineSettings
from dalsegno.streams.engine.task import TaskState

DATE_MS = 1_800_000_000_000


class Warm:
    """A local database that takes its time."""

    def __init__(self) -> None:
        self.ready = True
        self.asked = 0

    async def forget(self) -> bool:
        self.asked += 1
        return self.ready


class Task:
    """A partition task, as the eraser sees one."""

    def __init__(self, log: Log) -> None:
        self.number = 0
        self.log = log
        self.state = TaskState.READY
        self.warm: Warm | None = None
        self.said: list[ErasureConfirmed] = []
        self.ticks = 0
        self.lost = False

    @property
    def fold(self) -> Partition:
        return self.log.partition

    async def append_control(self, event: ControlEvent) -> Appended:
        if self.lost:
            raise OutcomeUnknownError("the broker is away")
        assert isinstance(event, ErasureConfirmed)
        self.said.append(event)
        self.log.put(event)
        return Appended(self.log.partition.position - 1, self.log.now_ms)

    async def tick(self) -> None:
        self.ticks += 1

    def behind_s(self, now_s: float) -> float:
        return 0.0


class Context:
    def __init__(self) -> None:
        self.settings = EngineSettings()
        self.metrics = EngineMetrics()
        self.warm: object = None
        self.blobs: object = None


class Owner:
    def __init__(self, task: Task) -> None:
        self.context = Context()
        self.tasks = {0: task}
        self.saved_to = 0

    def saved_positions(self) -> dict[TopicPartition, int]:
        topic = self.context.settings.topics.events
        return {TopicPartition(topic, number): self.saved_to for number in self.tasks}


class Stand:
    """A partition of which run `r` was erased."""

    def __init__(self, log: Log, *, archive: Archive | None = None, blobs: object = None) -> None:
        self.log = log
        self.task = Task(log)
        self.owner = Owner(self.task)
        self.owner.context.blobs = blobs
        self.eraser = Eraser(cast(Ownership, self.owner), archive)

    async def turn(self) -> bool:
        return await self.eraser.turn()

    def saved(self) -> None:
        self.owner.saved_to = self.log.partition.position


@pytest.fixture(autouse=True)
def ages(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The brokers' answers: the changelog goes on forgetting for an hour more."""
    rolls = [10_000]

    async def dates(self: LogAges, last_ms: int) -> list[Forgets]:
        return [Forgets("events", DATE_MS)]

    async def changelog(self: LogAges, last_ms: int) -> tuple[int, int]:
        return 1 << 61, rolls[0]

    monkeypatch.setattr(LogAges, "dates", dates)
    monkeypatch.setattr(LogAges, "changelog", changelog)
    return rolls


def erased(context: dict[str, object] | None = None) -> Log:
    log = Log()
    log.start(chain(1), context=context)
    log.put(ErasureRequested(run_id="r", erasure_id="e", reason="asked", requested_by="ana"))
    return log


async def test_it_waits_for_the_checkpoint_and_says_it_once() -> None:
    stand = Stand(erased())
    assert await stand.turn()
    assert stand.task.said == []
    stand.saved()
    for _ in range(3):
        await stand.turn()
    (said,) = stand.task.said
    assert said.run_digest == digest_of_id("r")
    assert [each.store for each in said.stores] == ["memory", "changelog"]
    assert said.gone_by_ms == DATE_MS
    stone = stand.log.partition.erased("r")
    assert stone is not None
    assert stone.number >= 0


async def test_it_waits_for_the_local_database() -> None:
    stand = Stand(erased())
    stand.saved()
    stand.task.warm = warm = Warm()
    warm.ready = False
    await stand.turn()
    await stand.turn()
    assert (stand.task.said, warm.asked) == ([], 2)
    warm.ready = True
    await stand.turn()
    assert [each.store for each in stand.task.said[0].stores][-1] == "local database"


def read_only() -> list[Path]:
    raise OSError("Read-only file system: 'partition-1.0'")


@pytest.mark.parametrize("sweep", [lambda: [Path("aside-1")], read_only])
async def test_an_old_database_that_cannot_be_removed_is_counted(
    sweep: Callable[[], list[Path]],
) -> None:
    stand = Stand(erased())
    stand.owner.context.warm = SimpleNamespace(sweep=sweep)
    assert await stand.turn(), "no partition waits for it"
    text = stand.owner.context.metrics.text()
    assert b'dalsegno_erasure_failures_total{store="local database"} 1.0' in text


async def test_it_waits_until_the_archive_has_what_came_before_the_request() -> None:
    stand = Stand(erased(), archive=Archive(MemoryObjects(), "p"))
    stand.saved()
    await stand.turn()
    assert stand.log.partition.archived_to == 0
    assert stand.task.said == []


async def test_a_store_in_trouble_is_counted_and_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stand = Stand(erased(), archive=Archive(MemoryObjects(), "p"))
    stand.saved()
    monkeypatch.setattr(Partition, "archived_to", 1 << 40)

    def failing(*_: object) -> None:
        raise ArchiveError(Trouble.UNREACHABLE, "p", "nobody answers")

    with monkeypatch.context() as patch:
        patch.setattr("dalsegno.streams.agents.erasing.rewrite", failing)
        assert not await stand.turn()
    assert stand.task.said == []
    assert await stand.turn()
    assert [each.store for each in stand.task.said[0].stores][-1] == "archive"


async def test_what_came_into_the_archive_meanwhile_is_taken_out_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dalsegno.streams.agents.erasing._now_ms", lambda: START_MS + 60_000)
    monkeypatch.setattr(Partition, "archived_to", 1 << 40)
    archive = Archive(MemoryObjects(), "p")
    stand = Stand(erased(), archive=archive)
    stand.saved()
    await stand.turn()
    assert len(stand.task.said) == 1
    writer = SegmentWriter(0, 1)
    writer.add(Kind.RUN, "r", b"its state, chosen before", first=1, last=1, count=1)
    archive.put(writer.finish(1))
    await stand.turn()
    assert list(archive.manifests())
    monkeypatch.setattr("dalsegno.streams.agents.erasing.time.monotonic", lambda: 1e12)
    await stand.turn()
    assert not list(archive.manifests())
    assert len(stand.task.said) == 1


async def test_a_word_that_was_perhaps_not_appended_is_said_again() -> None:
    stand = Stand(erased())
    stand.saved()
    stand.task.lost = True
    assert not await stand.turn()
    stand.task.lost = False
    assert await stand.turn()
    assert len(stand.task.said) == 1


async def test_while_the_changelog_forgets_something_is_written_now_and_then(
    ages: list[int],
) -> None:
    stand = Stand(erased())
    for _ in range(5):
        await stand.turn()
    assert stand.task.ticks == 1
    ages[0] = 1 << 62
    other = Stand(erased())
    await other.turn()
    assert other.task.ticks == 0, "what is never cleaned need not be closed"


async def test_a_partition_that_fails_holds_up_no_other() -> None:
    stand = Stand(erased())
    stand.saved()
    stand.task.lost = True
    other = Task(erased())
    other.number = 1
    stand.owner.tasks[1] = other
    assert not await stand.turn()
    assert stand.task.said == []
    assert len(other.said) == 1


async def test_a_run_that_was_erased_long_ago_is_no_reason_to_look_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The whole archive of the partition is read for it."""
    now_ms, now_s, looks = [START_MS + 60_000], [1_000.0], [0]
    monkeypatch.setattr("dalsegno.streams.agents.erasing._now_ms", lambda: now_ms[0])
    monkeypatch.setattr("dalsegno.streams.agents.erasing.time.monotonic", lambda: now_s[0])
    monkeypatch.setattr(Partition, "archived_to", 1 << 40)

    def looked(*_: object) -> Rewritten:
        looks[0] += 1
        return Rewritten()

    monkeypatch.setattr("dalsegno.streams.agents.erasing.rewrite", looked)
    log = erased()
    log.now_ms += 86_400_000
    log.put(ErasureRequested(run_id="b", erasure_id="f", reason="asked", requested_by="ana"))
    stand = Stand(log, archive=Archive(MemoryObjects(), "p"))
    stand.saved()
    for pass_s in (0, 1, 600, 600):
        now_s[0] += pass_s
        await stand.turn()
    assert looks == [2], "once, and once more"
    now_ms[0] = START_MS + 2 * 86_400_000 + 3_600_000
    for pass_s in (0, 600, 600):
        now_s[0] += pass_s
        await stand.turn()
    assert looks == [2]


async def test_an_overdue_erasure_of_a_partition_that_is_gone_is_no_longer_ours_to_tell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An engine that lost the partition would tell of it for ever."""

    async def held_before(self: LogAges, number: int, last_ms: int) -> list[str]:
        return ["events"]

    monkeypatch.setattr(LogAges, "held_before", held_before)
    monkeypatch.setattr(erasing, "_now_ms", lambda: DATE_MS + 1)
    stand = Stand(erased())
    stand.saved()
    await stand.turn()
    await stand.turn()
    overdue = 'dalsegno_erasure_overdue_topics{partition="0"} 1.0'
    assert overdue in stand.owner.context.metrics.text().decode()
    await stand.turn()
    assert overdue in stand.owner.context.metrics.text().decode()
    stand.owner.tasks.clear()
    await stand.turn()
    assert "dalsegno_erasure_overdue_topics{" not in stand.owner.context.metrics.text().decode()
