"""What a segment holds of a log in which some offsets have no record."""

from __future__ import annotations

import pytest
from tests.simulation.archive_log import Reader, Topic

from dalsegno.ops.archived import chain_of
from dalsegno.storage.archive.archive import Archive
from dalsegno.storage.archive.memory import MemoryObjects
from dalsegno.storage.archive.objects import ArchiveError, Trouble
from dalsegno.storage.archive.segment import Kind
from dalsegno.streams.engine import archiving
from dalsegno.streams.engine.archiving import Segmenter, Wanted, records_of
from dalsegno.streams.engine.settings import EngineSettings


def test_segments_follow_each_other_over_offsets_that_nobody_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The end of a transaction has an offset: the next segment begins with it all the same."""
    settings = EngineSettings()
    events, transitions = Topic(), Topic()
    topics = {settings.topics.events: events, settings.topics.transitions: transitions}
    monkeypatch.setattr(archiving, "LogReader", lambda _: Reader(topics))
    archive = Archive(MemoryObjects(), "p")
    segmenter = Segmenter(settings, 1, archive)
    end = 0
    for number in range(3):
        events.mark(number)
        events.append(number, b"run", b"first %d" % number)
        events.mark(number)
        events.append(number, b"run", b"second %d" % number)
        events.mark(number)
        manifest = segmenter.archive(Wanted(0, end, events.end))
        assert manifest is not None
        assert (manifest.first_offset, manifest.records) == (end, 2)
        archive.verify(manifest)
        end = manifest.last_offset + 1
    assert segmenter.archive(Wanted(0, end, events.end)) is None, "a marker alone is nothing"
    found = [
        (each.offset, each.value)
        for manifest in chain_of(archive, 0)
        for each in records_of(archive, manifest, Kind.EVENTS)
    ]
    right = [(each.at, each.value_bytes) for each in events.messages if not each.marker]
    assert found == right


def test_a_log_that_was_made_anew_adds_nothing_to_the_archive_of_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a sweep would take for segments that the log did not take is all that is left of it."""
    settings = EngineSettings()
    archive = Archive(MemoryObjects(), "p")

    def segmenter(count: int) -> tuple[Segmenter, int]:
        topics = {settings.topics.events: Topic(), settings.topics.transitions: Topic()}
        for number in range(count):
            topics[settings.topics.events].append(number, b"run", b"%d" % number)
        monkeypatch.setattr(archiving, "LogReader", lambda _: Reader(topics))
        return Segmenter(settings, 1, archive), count

    old, end = segmenter(9)
    assert old.archive(Wanted(0, 0, end)) is not None
    assert old.archive(Wanted(0, 0, end)) is not None, "its own, said by nobody yet"
    new, end = segmenter(3)
    with pytest.raises(ArchiveError, match="another log: ours ends at 3") as caught:
        new.archive(Wanted(0, 0, end))
    assert caught.value.trouble is Trouble.CONFIGURED
    assert len(list(archive.names())) == 1
