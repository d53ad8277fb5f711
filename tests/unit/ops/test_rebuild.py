"""What a rebuild takes from one archive into another."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from tests.unit.agents.test_archive_states import Task, archiver
from tests.unit.core.log import Log, chain
from tests.unit.core.shelf import waiting_for_a_person
from tests.unit.people.asking import decision

from dalsegno.ops.archived import counts_of
from dalsegno.ops.kafka.writer import Writer
from dalsegno.ops.rebuild import _Rebuild, copy_blobs
from dalsegno.schemas.blob import Blob
from dalsegno.storage.archive.archive import Archive
from dalsegno.storage.archive.memory import MemoryObjects
from dalsegno.storage.archive.segment import Kind, SegmentWriter
from dalsegno.storage.blobs.errors import BlobMissing
from dalsegno.storage.blobs.store import BlobStore
from dalsegno.streams.engine.settings import EngineSettings


def test_blobs_are_found_under_the_new_prefix_and_copied_once() -> None:
    objects = MemoryObjects()
    old = BlobStore(objects, "old", lambda: 0)
    packed = b"x" * 5_000
    blob = Blob.of(packed)
    old.put(1, blob, packed)
    objects.put("old/segments/s", b"no blob")
    new = BlobStore(objects, "new", lambda: 0)
    with pytest.raises(BlobMissing):
        new.get(1, blob)
    assert copy_blobs(objects, "old", "new") == 1
    assert new.get(1, blob) == packed
    assert copy_blobs(objects, "old", "new") == 0
    assert list(objects.list("new/segments/")) == []


@pytest.mark.parametrize("wanted", [False, True])
@pytest.mark.parametrize("lost", ["segments", "manifests"])
def test_a_state_that_the_archive_has_lost_costs_its_run_and_no_other(
    lost: str, *, wanted: bool
) -> None:
    log, package = waiting_for_a_person()
    log.start(chain(1), "other")
    objects = MemoryObjects()
    asyncio.run(archiver(objects).turn(Task(log)))  # type: ignore[arg-type]
    assert log.partition.archived.count == 1
    if wanted:
        log.put(decision(package, "retry"))
    (name,) = Archive(objects, "p").state_names()
    objects.delete([f"p/{lost}/{name}"])
    made = _Rebuild(EngineSettings(), Archive(objects, "p"), 0, cast(Writer, None))
    made._bring_back(log.partition)
    assert list(made._runs(log.partition)) == []
    reasons = dict(made._left)
    assert set(reasons) == {"r", "other"}, "the other is not at rest here"
    assert "missing" in reasons["r"]


def test_events_that_wait_for_a_start_are_told() -> None:
    log = Log()
    log.began("s0", run_id="never")
    made = _Rebuild(EngineSettings(), Archive(MemoryObjects(), "p"), 0, cast(Writer, None))
    made._early(log.partition)
    assert made._left == [("never", "1 events wait for its start")]


def test_a_damaged_manifest_does_not_stop_a_rebuild() -> None:
    objects = MemoryObjects()
    archive = Archive(objects, "p")
    names = []
    for first in (0, 5):
        writer = SegmentWriter(0, 4)
        writer.add(Kind.EVENTS, "", b"records", first=first, last=first + 4, count=5)
        names.append(archive.put(writer.finish(first + 4)).segment)
    objects.replace(f"p/manifests/{names[0]}", b"other bytes" * 9)
    assert list(counts_of(archive)) == [4]
