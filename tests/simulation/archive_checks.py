"""What an archive must hold once everything has come to rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.promises import BrokenPromiseError

from dalsegno.ops.archived import ArchiveGap, chain_of, transitions_of
from dalsegno.storage.archive.segment import SegmentCorrupt

if TYPE_CHECKING:
    from tests.simulation.archive_world import ArchiveWorld


def read_back(world: ArchiveWorld) -> None:
    """What `audit` and `archive verify` do, with nothing but the bucket."""
    try:
        segments = chain_of(world.honest, 0)
    except (ArchiveGap, SegmentCorrupt) as error:
        raise BrokenPromiseError(f"P2: {error}") from error
    if not segments or segments[-1].last_offset + 1 < world.reference.archived_to:
        raise BrokenPromiseError("P2: the chain ends before what was confirmed")
    kept = [each.value or b"" for each in transitions_of(world.honest, segments)]
    if kept != world.audited[: len(kept)]:
        raise BrokenPromiseError("P2: archived transitions are not those of the fold")
    if len(kept) < len(world.audited) - 4:
        raise BrokenPromiseError(f"P1: {len(kept)} of {len(world.audited)} are archived")
    held = world.honest.held(0)
    orphans = {n for n in held.segments if n not in held.manifests}
    if orphans:
        raise BrokenPromiseError(f"P11: {len(orphans)} orphans are left")
