"""Segments of states go once no run needs them, and not before."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.agents.test_archive_states import Task, archiver, restored
from tests.unit.core.log import START_MS, Log, chain, view
from tests.unit.core.shelf import waiting_for_a_person
from tests.unit.people.asking import decision, failed

from dalsegno.schemas.events import RunCancelled
from dalsegno.storage.archive.archive import Archive
from dalsegno.storage.archive.memory import MemoryObjects
from dalsegno.streams.agents.archive_restore import Restorer
from dalsegno.streams.agents.archive_sweep import Sweep
from dalsegno.streams.engine.archive_settings import ArchiveSettings
from dalsegno.streams.engine.metrics import EngineMetrics

DAY_MS = 24 * 3_600_000
LATER_MS = 5_000


class Rig:
    """A run whose state is in the archive, and a bucket whose clock the test moves."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.objects = MemoryObjects(lambda: self.now_ms)
        self.archive = Archive(self.objects, "p")
        self.log, self.package = waiting_for_a_person()
        self.task = Task(self.log)
        asyncio.run(archiver(self.objects).turn(self.task))  # type: ignore[arg-type]
        assert view(self.log).kind == "archived"

    def later(self) -> None:
        """A day passes, and something else is put."""
        self.now_ms += DAY_MS
        self.objects.put(f"p/segments/00000/other-{self.now_ms}", b"")
        self.log.now_ms += LATER_MS

    def swept(self) -> int:
        """How many segments of states are left after a sweep."""
        settings = ArchiveSettings(bucket="b", sweep_interval_ms=100)
        metrics = EngineMetrics()
        sweep = Sweep(self.archive, settings, metrics)
        asyncio.run(sweep.turn(0, self.log.partition))
        return len(list(self.archive.state_names()))

    def bring_back(self) -> None:
        self.log.put(decision(self.package, "retry"))
        asyncio.run(restored(self.task, Restorer(self.archive, EngineMetrics())))
        assert view(self.log).kind == "run"


def test_what_a_stub_names_stays_however_old() -> None:
    rig = Rig()
    rig.later()
    assert rig.swept() == 1


def test_it_goes_when_its_run_is_back_and_has_moved_on() -> None:
    rig = Rig()
    rig.later()
    rig.bring_back()
    assert rig.swept() == 0
    assert list(rig.objects.list("p/segments/00000/runs-")) == []


def test_what_is_young_stays() -> None:
    rig = Rig()
    rig.log.now_ms += LATER_MS
    rig.bring_back()
    assert rig.swept() == 1


def test_it_goes_when_its_run_has_ended() -> None:
    rig = Rig()
    rig.later()
    rig.log.put(RunCancelled(run_id="r", request_id="c"))
    asyncio.run(restored(rig.task, Restorer(rig.archive, EngineMetrics())))
    assert view(rig.log).kind == "ended"
    assert rig.swept() == 0


def test_one_that_a_late_word_could_still_make_count_stays() -> None:
    """An owner put it and slept before it told the log; the run is as the segment has it."""
    rig = Rig()
    rig.log, _ = waiting_for_a_person()
    assert view(rig.log).kind == "run"
    rig.later()
    assert rig.swept() == 1


def test_what_a_crash_left_of_states_goes_too() -> None:
    rig = Rig()
    (name,) = rig.archive.state_names()
    rig.objects.delete([f"p/manifests/{name}"])
    rig.log = Log()
    rig.log.start(chain(1))
    rig.log.now_ms = START_MS + LATER_MS
    rig.log.began("s0")
    failed(rig.log, "s0")
    rig.later()
    rig.swept()
    assert list(rig.objects.list("p/segments/00000/runs-")) == []


@pytest.mark.parametrize("data", [b"", b"dsg1 and no more"])
def test_what_cannot_be_read_is_left_alone_unless_a_crash_left_it(data: bytes) -> None:
    """What has a manifest may be mended; half an object without one is nobody's."""
    rig = Rig()
    rig.objects.put("p/segments/00000/runs-x", data)
    rig.objects.put("p/manifests/00000/runs-x", b"")
    rig.objects.put("p/segments/00000/runs-y", data)
    rig.later()
    rig.swept()
    assert rig.objects.get("p/segments/00000/runs-x") == data
    assert rig.objects.stat("p/segments/00000/runs-y") is None


def test_an_owner_that_is_behind_takes_nothing_away() -> None:
    """It slept for days, and does not know yet that the run has ever started."""
    rig = Rig()
    rig.log = Log()
    rig.later()
    assert rig.swept() == 1
