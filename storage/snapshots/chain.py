"""Chains of snapshots: written link by link, read back to the newest link that is whole.

A delta's dictionary is what the chain's payloads end with, so a link can be read only behind all
links since its base. If one is damaged, the ones before it still are: the newest of them is the
snapshot, and the log is folded again from its version on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from dalsegno.storage.frame import Frame, store
from dalsegno.storage.snapshots.errors import Fault, SnapshotCorrupt
from dalsegno.storage.snapshots.link import (
    Header,
    LinkKind,
    Version,
    write_link,
)
from dalsegno.storage.snapshots.rebase import LENGTH_MAX, base_due
from dalsegno.storage.snapshots.walk import EMPTY, Found, Tail, after, newest_base, walk
from dalsegno.streams.core.context_masking import joined
from dalsegno.streams.core.versions import move, moves

WHOLE_SHARE: Final = 0.25
"""Operations that take more than this share of the context may be dearer than the context."""
_STEP_BYTES: Final = 40
"""What is known of a settled step takes in memory, more or less."""
LINK_BYTES: Final = 256
"""What a link takes beside its payload, more or less."""


class About(msgspec.Struct, frozen=True, gc=False):
    """What a link says besides the context; see `Header`."""

    step: str
    run_version: int
    plan_digest: bytes
    schema: str
    schema_version: int
    at_ms: int
    dependencies: tuple[str, ...] = ()
    versions: tuple[Version, ...] = ()
    began_ms: int = 0
    field_versions: tuple[tuple[str, int], ...] = ()


class Stage(msgspec.Struct, frozen=True, gc=False):
    """One version on the way: the packed operations that lead to it, and what its context takes."""

    version: Version
    context_bytes: int
    operations: bytes


class Snapshot(msgspec.Struct, frozen=True, gc=False):
    """A context at one version of its run. `context` is packed; `place` the link's in its chain.

    `version`: where the link says which it holds; `settled`: how steps stood then. `faults`: what
    was passed over to get it.
    """

    header: Header
    context: bytes
    place: int
    faults: tuple[SnapshotCorrupt, ...] = ()
    version: Version | None = None
    settled: Mapping[int, int] = EMPTY


class ChainWriter:
    """Writes the links of one run, in the order of its versions. `written`: kinds and bytes of the
    links, `packing_s`: seconds that compression took, until somebody empties them.
    """

    def __init__(self, run_id: str, tail: Tail | None = None) -> None:
        self._run_id = run_id
        self._tail = tail
        self.written: list[tuple[LinkKind, int]] = []
        self.packing_s = 0.0

    @classmethod
    def resume(cls, run_id: str, links: Sequence[bytes]) -> ChainWriter:
        """Goes on behind the newest link that is whole; with a new base behind a damaged one."""
        tail = None
        for found in walk(run_id, links[newest_base(run_id, links) :]):
            tail = None if isinstance(found, SnapshotCorrupt) else found.tail
        return cls(run_id, tail)

    @property
    def newest(self) -> tuple[int, int] | None:
        """Run version and event offset of the last link; None where the next one is a base."""
        return None if self._tail is None else (self._tail.run_version, self._tail.offset)

    @property
    def settled(self) -> Mapping[int, int]:
        """How steps stand at the last link: places and codes."""
        return EMPTY if self._tail is None else self._tail.settled

    @property
    def weight(self) -> int:
        """Bytes that it holds in memory, more or less."""
        tail = self._tail
        return 500 + (0 if tail is None else len(tail.dictionary) + _STEP_BYTES * len(tail.settled))

    def extend(
        self, about: About, stages: Sequence[Stage], context: Callable[[], bytes] | None
    ) -> list[bytes]:
        """Links that hold the versions of all stages. `about` says the rest; `context` gives that
        of the last stage, None if it cannot be had: then the chain grows by a delta all the same.

        One delta; or where a whole context is due, one for all stages but the last before it.
        Raises `ValueError` as `add`, or if there is no link to go on from.
        """
        tail, last = self._tail, stages[-1]
        if tail is None:
            raise ValueError(f"run {self._run_id!a}: its chain has not begun")
        if context is None:
            return [self._delta(about, stages)]
        if len(stages) == 1:
            whole = _of(about, (last.version,))
            return [self.add(whole, last.context_bytes, context, last.operations)]
        operations = joined([stage.operations for stage in stages])
        frame = self._store(operations, tail.dictionary)
        estimate = max(1, round(last.context_bytes * tail.ratio))
        due = base_due(tail.rent, len(frame.data), estimate, length_max=LENGTH_MAX - 1)
        if due or self._dear(len(operations), len(frame.data), last.context_bytes, context):
            before = self._delta(about, stages[:-1])
            return [before, *self.extend(about, stages[-1:], context)]
        return [self._delta(about, stages)]

    def _dear(
        self, packed: int, stored: int, context_bytes: int, context: Callable[[], bytes]
    ) -> bool:
        """Whether the operations take more than a whole context and a link of its own."""
        if packed <= WHOLE_SHARE * context_bytes or stored <= LINK_BYTES:
            return False
        assert self._tail is not None, "there are operations on something"
        return len(self._store(context(), self._tail.dictionary).data) + LINK_BYTES < stored

    def _delta(self, about: About, stages: Sequence[Stage]) -> bytes:
        assert self._tail is not None, "goes on from a link"
        self._check(stages[-1].version.number)
        operations = joined([stage.operations for stage in stages])
        about = _of(about, tuple(stage.version for stage in stages))
        frame = self._store(operations, self._tail.dictionary)
        return self._put(about, LinkKind.DELTA, operations, frame, stages[-1].context_bytes)

    def _check(self, run_version: int) -> None:
        tail = self._tail
        if tail is not None and run_version <= tail.run_version:
            raise ValueError(
                f"run {self._run_id!a}: version {run_version} after {tail.run_version}"
            )

    def add(
        self,
        about: About,
        context_bytes: int,
        context: Callable[[], bytes],
        operations: bytes | None,
    ) -> bytes:
        """The next link. `context` gives the packed context and is asked only where it is needed;
        `operations`, packed, lead to it from the context of the last link, None if nobody knows.

        Raises `ValueError` if the version does not grow.
        """
        tail = self._tail
        self._check(about.run_version)
        if tail is None or operations is None:
            return self._base(about, context(), context_bytes)
        kind, payload = LinkKind.DELTA, operations
        frame = self._store(operations, tail.dictionary)
        if len(operations) > WHOLE_SHARE * context_bytes:
            whole = context()
            other = self._store(whole, tail.dictionary)
            if len(other.data) < len(frame.data):
                kind, payload, frame = LinkKind.WHOLE, whole, other
        estimate = max(1, round(context_bytes * tail.ratio))
        if base_due(tail.rent, len(frame.data), estimate):
            return self._base(about, context(), context_bytes)
        return self._put(about, kind, payload, frame, context_bytes)

    def again(self, found: Found) -> bytes:
        """A link of another chain, with its kind, behind the last one here; the first is a base."""
        header, payload = found.link.header, found.payload
        about = _about(header)
        if self._tail is None or header.kind is LinkKind.BASE:
            if about.versions:
                moved = moves(self.settled, found.settled)
                newest = msgspec.structs.replace(about.versions[-1], settled=moved)
                about = msgspec.structs.replace(about, versions=(newest,))
            return self._base(about, found.context.pack(), header.context_bytes)
        frame = self._store(payload, self._tail.dictionary)
        return self._put(about, header.kind, payload, frame, header.context_bytes)

    def _base(self, about: About, context: bytes, context_bytes: int) -> bytes:
        return self._put(about, LinkKind.BASE, context, self._store(context), context_bytes)

    def _put(
        self, about: About, kind: LinkKind, payload: bytes, frame: Frame, context_bytes: int
    ) -> bytes:
        tail, versions = self._tail, about.versions
        settled = dict(self.settled)
        for version in versions:
            move(settled, version.settled)
        if kind is LinkKind.BASE:
            tail, versions = None, tuple(_whole(each, settled) for each in versions[-1:])
        header = Header(
            kind=kind,
            run_id=self._run_id,
            step=about.step,
            run_version=about.run_version,
            plan_digest=about.plan_digest,
            schema=about.schema,
            schema_version=about.schema_version,
            dependencies=about.dependencies,
            at_ms=about.at_ms,
            context_bytes=context_bytes,
            payload_bytes=0,
            stored_bytes=0,
            previous=tail.digest if tail is not None else b"",
            versions=versions,
            began_ms=about.began_ms,
            field_versions=about.field_versions,
        )
        data, link = write_link(header, payload, frame)
        self._tail = after(tail, link, payload, settled)
        self.written.append((kind, len(data)))
        return data

    def _store(self, payload: bytes, dictionary: bytes = b"") -> Frame:
        began = time.perf_counter()
        frame = store(payload, dictionary)
        self.packing_s += time.perf_counter() - began
        return frame


def restore(run_id: str, links: Sequence[bytes], *, run_version: int | None = None) -> Snapshot:
    """The newest snapshot that is whole; with `run_version`, the newest up to that version.

    Raises `SnapshotCorrupt`, of the last link, when none is.
    """
    faults: list[SnapshotCorrupt] = []
    begin = len(links)
    while begin > 0:
        begin = newest_base(run_id, links[:begin], run_version)
        best: Found | None = None
        for found in walk(run_id, links[begin:], run_version):
            if isinstance(found, SnapshotCorrupt):
                faults.append(found)
                break
            best = found
            if run_version is not None and found.link.header.run_version >= run_version:
                break
        if best is not None:
            return _snapshot(best, begin, tuple(faults), run_version)
    if faults:
        raise faults[0]
    raise SnapshotCorrupt(run_id, Fault.ORDER, "no link of its chain is that old")


def prune(run_id: str, links: Sequence[bytes], keep: int) -> list[bytes]:
    """The newest `keep` links; the first of them is made a base before what it needs goes.

    Every link that is kept restores to the same bytes. Raises `SnapshotCorrupt` if one does not:
    then nothing may be deleted.
    """
    if keep < 1:
        raise ValueError("keep at least one link")
    first = max(0, len(links) - keep)
    writer = ChainWriter(run_id)
    kept: list[bytes] = []
    for found in walk(run_id, links):
        if isinstance(found, SnapshotCorrupt):
            raise found
        if found.place < first:
            continue
        header = found.link.header
        if found.place == first and header.kind is LinkKind.BASE:
            return list(links[first:])
        kept.append(writer.again(found))
    return kept


def readable(
    run_id: str, links: Sequence[bytes], began_ms: int
) -> tuple[list[int], list[SnapshotCorrupt]]:
    """Places of the links that can be restored and are of the run that began then, not of an
    earlier one of the same id; and what is wrong with those that cannot.
    """
    places: list[int] = []
    faults: list[SnapshotCorrupt] = []
    for found in walk(run_id, links):
        if isinstance(found, SnapshotCorrupt):
            faults.append(found)
        elif found.link.header.began_ms == began_ms:
            places.append(found.place)
    return places, faults


def _snapshot(
    best: Found, begin: int, faults: tuple[SnapshotCorrupt, ...], run_version: int | None
) -> Snapshot:
    header = best.link.header
    held = [each for each in header.versions if run_version is None or each.number <= run_version]
    version = held[-1] if held else None
    settled = dict(best.settled)
    return Snapshot(header, best.context.pack(), begin + best.place, faults, version, settled)


def _about(header: Header) -> About:
    return About(
        header.step,
        header.run_version,
        header.plan_digest,
        header.schema,
        header.schema_version,
        header.at_ms,
        header.dependencies,
        header.versions,
        header.began_ms,
        header.field_versions,
    )


def _whole(version: Version, settled: Mapping[int, int]) -> Version:
    """As a base tells of it."""
    every = tuple(sorted(settled.items()))
    return msgspec.structs.replace(version, operations=0, settled=every)


def _of(about: About, versions: tuple[Version, ...]) -> About:
    """The same of other versions."""
    last = versions[-1]
    return msgspec.structs.replace(
        about, step=last.step, run_version=last.number, at_ms=last.at_ms, versions=versions
    )
