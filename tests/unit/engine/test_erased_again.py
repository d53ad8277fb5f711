"""Erasures one after the other, and a listing that is not all there is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.property.troubled_log import TroubledLog
from tests.unit.engine.test_erased_archive import END, PARTITION, add

from dalsegno.schemas.codec import encode
from dalsegno.schemas.control import ArchiveConfirmed, ErasureRequested
from dalsegno.schemas.outputs import Outcome
from dalsegno.storage.archive.archive import Archive
from dalsegno.storage.archive.memory import MemoryObjects
from dalsegno.storage.archive.objects import ArchiveError, ObjectStat
from dalsegno.storage.archive.records import Kept
from dalsegno.storage.archive.segment import Kind, SegmentWriter
from dalsegno.streams.core.record import Blank, Record
from dalsegno.streams.engine.archiving import records_of
from dalsegno.streams.engine.blanking import record_of
from dalsegno.streams.engine.rewriting import rewrite


def test_that_word_loses_one_run_after_the_other() -> None:
    """What an earlier erasure has left of it is looked at as the word itself."""
    log = TroubledLog(1, 30)
    word = ArchiveConfirmed(
        partition=0, number=1, segment="s", digest=b"d", first_offset=0, last_offset=1,
        run_ids=("a", "first", "then"), run_digests=(b"1", b"2", b"3"),
    )  # fmt: skip
    writer = SegmentWriter(PARTITION, 4)
    add(writer, Kind.EVENTS, [Kept(0, 5, b"0", encode(word))])
    archive = Archive(MemoryObjects(), "p")
    archive.put(writer.finish(1))
    for run_id, left in (("first", ("a", "then")), ("then", ("a",)), ("a", ())):
        log.put(ErasureRequested(run_id=run_id, erasure_id="e", reason="r", requested_by="ana"))
        stones = dict(log.partition.erasures)
        assert rewrite(archive, PARTITION, stones, END).records == 1
        (kept,) = records_of(archive, next(iter(archive.manifests())), Kind.EVENTS)
        read = record_of(kept)
        assert isinstance(read, Record)
        assert getattr(read.event, "run_ids", ()) == left
    assert read.event == Blank("ArchiveConfirmed", Outcome.APPLIED)


class Forgetful(MemoryObjects):
    """A listing that leaves the manifests out."""

    def list(self, prefix: str) -> Iterator[ObjectStat]:
        return iter(()) if "manifests" in prefix else super().list(prefix)


def test_a_listing_that_leaves_a_manifest_out_costs_no_segment() -> None:
    objects = Forgetful()
    log = TroubledLog(1, 30)
    log.put(ErasureRequested(run_id="gone", erasure_id="e", reason="r", requested_by="ana"))
    writer = SegmentWriter(PARTITION, 4)
    add(writer, Kind.EVENTS, [Kept(n, 5, key, b"v") for n, key in enumerate((b"gone", b"x"))])
    manifest = Archive(objects, "p").put(writer.finish(1))
    with pytest.raises(ArchiveError, match="listed without its manifest"):
        rewrite(Archive(objects, "p"), PARTITION, dict(log.partition.erasures), END)
    assert Archive(objects, "p").data(manifest)
