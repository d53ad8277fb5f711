"""What a bucket has of a partition and nobody needs: left by a crash, or by two owners at once.

The log decides which segments count: each confirmed one begins where the one before it ended. So
below the confirmed end everything is settled, and only there anything is removed:

1. a segment without a manifest, which a crash between the two left; a listing that leaves one out
   is not believed, it is asked for by name;
2. a segment of events on no unbroken way to the confirmed end: another owner's was confirmed.

Where two segments hold the same events, either may be the one that was confirmed: both stay. Where
no unbroken way leads to the end, something is missing, and nothing is removed. Ages are told by the
bucket's own clock, from the newest object in it.

Of segments with states of runs the fold says which are needed: one that has a run whose state is in
the archive, or a run as it still is, so that a late word of its owner could make it count. All
others were never confirmed, or all their runs have come back since.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from dalsegno.storage.archive.archive import Archive, holds_states, offsets_of
from dalsegno.storage.archive.segment import Kind, SegmentCorrupt


class OldStates(NamedTuple):
    """A segment of states that is older than the sweep's age. `newest_ms`: when the run of it that
    was touched last was touched; no run that was touched since can be as it has it. `position`: of
    the fold that it is of; one that is not there yet knows nothing of it.
    """

    segment: str
    run_ids: tuple[str, ...]
    newest_ms: int
    position: int


class Superfluous(NamedTuple):
    """Names of segments. `broken`: nothing can be said, since the confirmed chain has a gap."""

    unfinished: tuple[str, ...] = ()
    superseded: tuple[str, ...] = ()
    broken: bool = False


def superfluous(archive: Archive, partition: int, archived_to: int, age_ms: int) -> Superfluous:
    """What may go of a partition whose log has confirmed the events below `archived_to`.

    `age_ms`: younger objects stay. Raises `ArchiveError`.
    """
    held = archive.held(partition)
    newest_ms = max((*held.segments.values(), *held.manifests.values()), default=0)

    def settled(name: str, put_ms: int) -> bool:
        offsets = offsets_of(name)
        return offsets is not None and offsets[1] < archived_to and newest_ms - put_ms >= age_ms

    old = [name for name, put_ms in held.manifests.items() if settled(name, put_ms)]
    counting = _on_the_way(held.manifests, archived_to)
    if archived_to and not counting:
        return Superfluous(broken=True)
    unfinished = tuple(
        name
        for name, put_ms in held.segments.items()
        if name not in held.manifests and settled(name, put_ms) and not archive.has(name)
    )
    superseded = tuple(
        name for name in old if name not in counting and not _may_hold_runs(archive, name)
    )
    return Superfluous(unfinished, superseded)


def old_states(archive: Archive, partition: int, age_ms: int) -> Iterator[OldStates]:
    """Segments of states, with a manifest or without; whether a run needs one, its partition knows.

    One that cannot be read is left alone, unless it has no manifest either: then it is half of what
    a crash left. Raises `ArchiveError`.
    """
    held = archive.held(partition)
    newest_ms = max((*held.segments.values(), *held.manifests.values()), default=0)
    for name, put_ms in held.segments.items():
        if not holds_states(name) or newest_ms - put_ms < age_ms:
            continue
        try:
            index = archive.index_of(name)
        except SegmentCorrupt:
            if name not in held.manifests and not archive.has(name):
                yield OldStates(name, (), 0, 0)
            continue
        run_ids = tuple(each.name for each in index.entries if each.kind is Kind.RUN)
        position = max((each.last_offset for each in index.entries), default=0)
        yield OldStates(name, run_ids, index.created_at_ms, position)


def _may_hold_runs(archive: Archive, name: str) -> bool:
    try:
        return bool(archive.manifest(name).run_ids)
    except SegmentCorrupt:
        return True  # nobody can say: it stays


def _on_the_way(names: Iterable[str], archived_to: int) -> frozenset[str]:
    """Segments that an unbroken row leads through, from the first event of all to the confirmed
    end: the topic may have lost its beginning before it was archived.
    """
    spans: Mapping[str, tuple[int, int]] = {
        name: offsets for name in names if (offsets := offsets_of(name)) is not None
    }
    leads_on = {archived_to}
    for first, last in sorted(spans.values(), reverse=True):
        if last + 1 in leads_on:
            leads_on.add(first)
    reached = {min(first for first, _ in spans.values())} if spans else set()
    found: set[str] = set()
    for name, (first, last) in sorted(spans.items(), key=lambda each: each[1]):
        if first in reached and first in leads_on and last + 1 in leads_on:
            reached.add(last + 1)
            found.add(name)
    return frozenset(found)
