"""Deliberate bugs of the archive: putting, confirming, sweeping, reading back. Each is found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from tests.simulation.mutants import Mutant, replaced

from dalsegno.storage.archive import sweep
from dalsegno.storage.archive.archive import Archive, offsets_of
from dalsegno.storage.archive.objects import ArchiveError, Trouble
from dalsegno.streams.agents import archive_sweep
from dalsegno.streams.agents.archive import Archiver
from dalsegno.streams.core.controls import Controls
from dalsegno.streams.engine import archiving
from dalsegno.streams.engine.archive_bound import ArchiveBound
from dalsegno.streams.engine.archiving import Segmenter, Wanted


def not_read_back() -> AbstractContextManager[None]:
    """What was put counts without being read back."""
    return replaced(
        Archive, "_put_whole", lambda self, key, data: _put_or_leave(self._objects, key, data)
    )


def _put_or_leave(objects: Any, key: str, data: bytes) -> None:
    try:
        objects.put(key, data)
    except ArchiveError as error:
        if error.trouble is not Trouble.EXISTS:
            raise


@contextmanager
def manifest_not_read_back() -> Iterator[None]:
    """Only segments are compared."""
    right = Archive._put_whole

    def put_whole(self: Archive, key: str, data: bytes) -> None:
        if "/manifests/" in key:
            _put_or_leave(self._objects, key, data)
        else:
            right(self, key, data)

    with patch.object(Archive, "_put_whole", put_whole):
        yield


def deleted_before_it_is_put_again() -> AbstractContextManager[None]:
    """What seems to be other bytes is deleted, and then put."""

    def put_whole(self: Archive, key: str, data: bytes) -> None:
        try:
            self._objects.put(key, data)
        except ArchiveError as error:
            if error.trouble is not Trouble.EXISTS:
                raise
        if self._objects.get(key) != data:
            self._objects.delete([key])
            self._objects.put(key, data)
            if self._objects.get(key) != data:
                raise ArchiveError(Trouble.DAMAGED, key, "still not what was put")

    return replaced(Archive, "_put_whole", put_whole)


@contextmanager
def manifest_first() -> Iterator[None]:
    """A segment is listed before it is there."""
    right = Archive._put_whole
    kept: list[tuple[str, bytes]] = []

    def put_whole(self: Archive, key: str, data: bytes) -> None:
        if "/segments/" in key:
            kept[:] = [(key, data)]
        else:
            right(self, key, data)
            _put_or_leave(self._objects, *kept[0])

    with patch.object(Archive, "_put_whole", put_whole):
        yield


@contextmanager
def confirmed_before_it_is_put() -> Iterator[None]:
    """The log is told first; a crash then leaves nothing of it."""
    right = Archive._put_whole

    def put_whole(self: Archive, key: str, data: bytes) -> None:
        try:
            right(self, key, data)
        except ArchiveError:
            return

    with patch.object(Archive, "_put_whole", put_whole):
        yield


def ahead_of_the_checkpoint() -> AbstractContextManager[None]:
    """Events are archived whose transitions are perhaps not out yet."""

    def saved_to(self: Archiver, number: int) -> int:
        return int(self._ownership.tasks[number].fold.position)  # type: ignore[union-attr]

    return replaced(Archiver, "_saved_to", saved_to)


@contextmanager
def one_too_far() -> Iterator[None]:
    """The next segment begins behind the next event."""
    right = Segmenter.archive

    def archive(self: Segmenter, wanted: Wanted) -> Any:
        first = wanted.first + (1 if wanted.first and wanted.end > wanted.first + 1 else 0)
        return right(self, wanted._replace(first=first))

    with (
        patch.object(Segmenter, "archive", archive),
        patch.object(Controls, "_archive_fault", lambda self, event: ""),
    ):
        yield


@contextmanager
def gaps_are_passed_over() -> Iterator[None]:
    """What left its topic before it was archived is passed over, and the fold takes it so."""
    right = Segmenter._segment

    def segment(self: Segmenter, reader: Any, wanted: Wanted) -> Any:
        low, _ = reader.bounds(self._settings.topics.events, wanted.partition)
        return right(self, reader, wanted._replace(first=max(low, wanted.first)))

    with (
        patch.object(Segmenter, "_segment", segment),
        patch.object(Controls, "_archive_fault", lambda self, event: ""),
    ):
        yield


def own_word_for_ever() -> AbstractContextManager[None]:
    """Our own word counts, also after the fold has refused it."""
    return replaced(
        ArchiveBound, "archived_to", lambda self, fold: max(fold.archived_to, self._said[1])
    )


@contextmanager
def last_record_lost() -> Iterator[None]:
    """A block is closed without the record that filled it."""
    right = archiving.Blocks.close

    def close(self: Any) -> None:
        if len(self._records) > 3:
            self._records.pop()
        right(self)

    with patch.object(archiving.Blocks, "close", close):
        yield


@contextmanager
def transitions_from_too_far() -> Iterator[None]:
    """Where the transitions of the next events begin is told one too far."""
    right = Segmenter._transitions_from

    def begin(self: Segmenter, reader: Any, partition: int, first: int) -> int:
        return right(self, reader, partition, first) + bool(first)

    with patch.object(Segmenter, "_transitions_from", begin):
        yield


def _sweeping(choose: Any) -> AbstractContextManager[None]:
    return replaced(archive_sweep, "superfluous", choose)


def swept_above_the_confirmed() -> AbstractContextManager[None]:
    """What has no manifest goes at once, also while an owner is at it."""

    def choose(archive: Archive, partition: int, archived_to: int, age_ms: int) -> Any:
        held = archive.held(partition)
        gone = tuple(name for name in held.segments if name not in held.manifests)
        return sweep.Superfluous(gone)

    return _sweeping(choose)


def swept_by_the_listing_alone() -> AbstractContextManager[None]:
    """A manifest that a listing leaves out is taken for one that is not there."""
    return replaced(Archive, "has", lambda self, segment: False)


def swept_though_a_gap() -> AbstractContextManager[None]:
    """The sweep goes on where it cannot see an unbroken way to the confirmed end."""

    def choose(archive: Archive, partition: int, archived_to: int, age_ms: int) -> Any:
        held = archive.held(partition)
        counting = sweep._on_the_way(held.manifests, archived_to)
        return sweep.Superfluous((), tuple(n for n in held.manifests if n not in counting))

    return _sweeping(choose)


def the_longest_segment_counts() -> AbstractContextManager[None]:
    """Of two segments with one beginning the sweep keeps the longer, whatever was confirmed."""

    def on_the_way(names: Mapping[str, int], archived_to: int) -> frozenset[str]:
        best: dict[int, tuple[int, str]] = {}
        for name in names:
            first, last = offsets_of(name) or (0, 0)
            best[first] = max(best.get(first, (0, "")), (last, name))
        return frozenset(name for _, name in best.values())

    return replaced(sweep, "_on_the_way", on_the_way)


def young_orphans_only() -> AbstractContextManager[None]:
    """What a crash left is never swept."""
    return _sweeping(lambda archive, partition, archived_to, age_ms: sweep.Superfluous())


ARCHIVE_MUTANTS = (
    Mutant("a segment is not read back", not_read_back),
    Mutant("a manifest is not read back", manifest_not_read_back),
    Mutant("deleted before it is put again", deleted_before_it_is_put_again, 600),
    Mutant("the manifest is put first", manifest_first),
    Mutant("confirmed though it was not put", confirmed_before_it_is_put),
    Mutant("archived ahead of the checkpoint", ahead_of_the_checkpoint),
    Mutant("a segment begins one too far", one_too_far),
    Mutant("gaps are passed over", gaps_are_passed_over),
    Mutant("our own word counts for ever", own_word_for_ever),
    Mutant("the last record of a block is lost", last_record_lost),
    Mutant("transitions begin too far", transitions_from_too_far),
    Mutant("swept while an owner is at it", swept_above_the_confirmed),
    Mutant("swept by the listing alone", swept_by_the_listing_alone, 1_200),
    Mutant("swept though there is a gap", swept_though_a_gap, 600),
    Mutant("the longest segment counts", the_longest_segment_counts),
    Mutant("orphans are never swept", young_orphans_only),
)
