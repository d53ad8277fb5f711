"""The archiver takes the partitions in turn: trouble of one is not the trouble of all."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from tests.unit.agents.test_archive_states import Task
from tests.unit.core.log import Log, chain

from dalsegno.storage.archive.archive import Archive, Manifest
from dalsegno.storage.archive.memory import MemoryObjects
from dalsegno.storage.archive.objects import ArchiveError, Trouble
from dalsegno.storage.archive.segment import Damage, SegmentCorrupt
from dalsegno.streams.agents import archive as agent
from dalsegno.streams.agents.archive import Archiver
from dalsegno.streams.core.state_codec import StateCorrupt
from dalsegno.streams.engine.archive_bound import ArchiveBound
from dalsegno.streams.engine.archiving import Segmenter, Wanted
from dalsegno.streams.engine.log_ages import LogAges
from dalsegno.streams.engine.metrics import EngineMetrics
from dalsegno.streams.engine.settings import EngineSettings


class Rig:
    """Three partitions, each with events that are due."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[int] = []
        self.errors: dict[int, Exception] = {}
        self.metrics = EngineMetrics()
        settings = EngineSettings()
        tasks: dict[int, Any] = {}
        for number in range(3):
            log = Log()
            log.start(chain(1))
            task: Any = Task(log)
            task.number = number
            task.archive = ArchiveBound(settings.archive, lambda: None)
            tasks[number] = task
        topic = settings.topics.events
        ownership: Any = SimpleNamespace(
            context=SimpleNamespace(
                settings=settings, metrics=self.metrics, layout=SimpleNamespace(partitions=3)
            ),
            tasks=tasks,
            saved_positions=lambda: {TopicPartition(topic, number): 1 for number in tasks},
        )
        self.archiver = Archiver(ownership, Archive(MemoryObjects(), "p"))
        self.now_s = 1_000.0

        async def kept_ms(*_: object) -> int:
            return 1 << 62

        def archived(_: Segmenter, wanted: Wanted) -> Manifest | None:
            self.asked.append(wanted.partition)
            if wanted.partition in self.errors:
                raise self.errors[wanted.partition]
            return None

        monkeypatch.setattr(LogAges, "kept_ms", kept_ms)
        monkeypatch.setattr(Segmenter, "archive", archived)
        monkeypatch.setattr(agent.time, "monotonic", lambda: self.now_s)

    async def turn(self) -> list[int]:
        """The partitions that it tried."""
        self.asked.clear()
        await self.archiver.turn()
        return list(self.asked)


@pytest.mark.parametrize(
    "error",
    [
        ArchiveError(Trouble.MISSING, "events[0]", "events left their topic"),
        SegmentCorrupt("k", Damage.DIGEST, "it is not what was put"),
        StateCorrupt("a header of format 9"),
    ],
)
async def test_a_partition_in_trouble_rests_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    rig = Rig(monkeypatch)
    rig.errors[0] = error
    assert await rig.turn() == [0, 1, 2]
    assert await rig.turn() == [1, 2], "it rests"
    rig.now_s += 1.0
    assert await rig.turn() == [0, 1, 2]
    rig.now_s += 1.0
    assert await rig.turn() == [1, 2], "and longer each time"
    rig.now_s += 60.0
    rig.errors.clear()
    assert await rig.turn() == [0, 1, 2]
    assert await rig.turn() == [0, 1, 2]
    assert b'dalsegno_archive_failures_total{trouble="' in rig.metrics.text()


async def test_a_store_in_trouble_is_asked_for_one_partition_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(monkeypatch)
    rig.errors[0] = ArchiveError(Trouble.UNREACHABLE, "p", "nobody answers")
    assert await rig.turn() == [0]
    rig.errors.clear()
    assert await rig.turn() == [0, 1, 2]
