"""Rewrites the archive of a partition so that erased runs are in it no more.

Repeatable at any point: a segment is put, verified and listed before the one that it replaces goes,
and a reader takes the newer of the two. What a crash left of that is removed first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import structlog

from dalsegno.storage.archive.archive import Archive, Manifest
from dalsegno.storage.archive.records import RecordsCorrupt
from dalsegno.storage.archive.segment import SegmentCorrupt
from dalsegno.streams.engine.blanking import Stones, blank, look

log = structlog.get_logger(__name__)


class Rewritten(NamedTuple):
    """Segments that were rewritten or taken out, records that were blanked, states removed."""

    segments: int = 0
    records: int = 0
    states: int = 0


def rewrite(archive: Archive, partition: int, stones: Stones, archived_to: int) -> Rewritten:
    """Reads every segment of the partition. `archived_to`: what is below it is confirmed, so that
    nobody is still at a segment of it. Blocks. Raises `ArchiveError`, `SegmentCorrupt`,
    `RecordsCorrupt`.
    """
    tidy(archive, partition)
    _take_out(archive, list(_unlisted(archive, partition, stones, archived_to)))
    found: list[Manifest] = []
    outcomes: dict[int, str] = {}
    records = states = 0
    for manifest in archive.manifests(partition):
        seen = look(archive.data(manifest), stones)
        outcomes.update(seen.outcomes)
        if seen.records or seen.states:
            found.append(manifest)
            records += seen.records
            states += seen.states
    for manifest in found:
        data = blank(archive.data(manifest), stones, outcomes)
        if data is None:
            _take_out(archive, [manifest.segment])
        else:
            archive.replace(manifest, data)
        log.info("segment rewritten", partition=partition, segment=manifest.segment)
    return Rewritten(len(found), records, states)


def blobs_named(archive: Archive, partition: int, stones: Stones) -> set[bytes]:
    """Digests of the blobs that erased runs have ever named. `rewrite` takes the names away, so
    this comes before it. Blocks. Raises as `rewrite`.
    """
    found: set[bytes] = set()
    for manifest in archive.manifests(partition):
        found |= look(archive.data(manifest), stones).blobs
    return found


def tidy(archive: Archive, partition: int) -> int:
    """Removes segments that were replaced and are still there. How many. Raises as `rewrite`."""
    left = archive.replaced(partition)
    _take_out(archive, left)
    return len(left)


def _unlisted(archive: Archive, partition: int, stones: Stones, archived_to: int) -> Iterator[str]:
    """Segments that no manifest names and that have something of erased runs."""
    for name, data in archive.unlisted(partition, archived_to):
        try:
            seen = look(data, stones)
        except (SegmentCorrupt, RecordsCorrupt):
            # Half an object: nothing can be made of it, so nothing is kept of it.
            yield name
        else:
            if seen.records or seen.states:
                yield name


def _take_out(archive: Archive, segments: list[str]) -> None:
    for error in archive.delete(segments).values() if segments else ():
        raise error
