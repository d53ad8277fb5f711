"""Segments of states of runs: what goes in, and how one state comes out again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from dalsegno.storage.archive.archive import Archive, Manifest
from dalsegno.storage.archive.objects import ArchiveError
from dalsegno.storage.archive.segment import (
    Damage,
    Index,
    Kind,
    SegmentCorrupt,
    SegmentWriter,
)
from dalsegno.streams.core.archived import Resting
from dalsegno.streams.core.cold import is_digest_of, unpack_parts

Plans = Mapping[bytes, Sequence[tuple[bytes, bytes]]]
"""By digest: the packed plan and those that it extends, as parts."""


def segment_of(
    partition: int, partitions: int, position: int, resting: Iterable[Resting], plans: Plans
) -> bytes:
    """One segment: states as of a position of the fold, and each plan once. Raises `ValueError`."""
    writer = SegmentWriter(partition, partitions)
    found: dict[bytes, bytes] = {}
    newest_ms = 0
    for each in resting:
        count = len(unpack_parts(each.parts))
        writer.add(Kind.RUN, each.run_id, each.parts, first=position, last=position, count=count)
        found.update(plans[each.plan])
        newest_ms = max(newest_ms, each.updated_ms)
    for key, packed in found.items():
        name = key[1:].hex()
        writer.add(Kind.PLAN, name, packed, first=position, last=position, count=1)
    return writer.finish(newest_ms)


class States:
    """Reads states out of segments, by ranges. What it has read of indexes it keeps a while.

    For any thread. Every call raises `ArchiveError`, `SegmentCorrupt`.
    """

    def __init__(self, archive: Archive, kept: int = 64) -> None:
        self._archive = archive
        self._kept = kept
        self._known: dict[str, tuple[Manifest, Index]] = {}

    def parts(self, segment: str, run_id: str, digest: bytes) -> bytes:
        """The parts of a run, as they were archived, of exactly this digest."""
        if segment in self._known:
            # A segment that was rewritten has another name: what is known of it is of yesterday.
            with suppress(ArchiveError, SegmentCorrupt):
                return self._parts(segment, run_id, digest)
            self._known.pop(segment, None)
        return self._parts(segment, run_id, digest)

    def _parts(self, segment: str, run_id: str, digest: bytes) -> bytes:
        manifest, index = self._of(segment)
        entry = index.run(run_id)
        if entry is None:
            raise SegmentCorrupt(segment, Damage.INDEX, f"run {run_id!a} is not in it")
        parts = self._archive.read(manifest, entry)
        if not is_digest_of(digest, parts):
            detail = f"run {run_id!a} is in it, and in another state"
            raise SegmentCorrupt(segment, Damage.DIGEST, detail)
        return parts

    def _of(self, segment: str) -> tuple[Manifest, Index]:
        known = self._known.get(segment)
        if known is None:
            manifest = self._archive.manifest(segment)
            known = manifest, self._archive.index(manifest)
            while len(self._known) >= self._kept:
                self._known.pop(next(iter(self._known)), None)
            self._known[segment] = known
        return known
